"""``rtlstm devices`` and ``rtlstm boards``: what the other commands take by name."""

from typing import Any

from rtlstm.cli.console import CommandSession
from rtlstm.cli.options import DebugOption, JsonOption

__all__ = ["boards", "devices"]


def devices(as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the FPGAs that --fit and --device take by name."""
    with CommandSession(as_json, debug) as session:
        from rtlstm.fpga.devices import devices as known_devices
        from rtlstm.fpga.families.base import estimated_families

        estimated = estimated_families()
        found: list[dict[str, Any]] = [
            {
                "name": each.name,
                "aliases": each.aliases,
                "family": each.family,
                "luts": each.luts,
                "flip_flops": each.ffs,
                "multipliers": each.multipliers,
                "block_rams": each.block_rams,
                "block_ram_kibit": each.block_ram_kibit,
                "packages": tuple(each.pins),
                "speed_grades": each.grades,
                "fit": each.family in estimated,
                "place_and_route": each.routable,
            }
            for each in known_devices().values()
        ]
        session.fields = {"devices": found}
        session.table(
            "Devices",
            ("name", "family", "LUTs", "flip-flops", "multipliers", "block RAMs", "grades", "for"),
            [
                (
                    each["name"],
                    each["family"],
                    f"{each['luts']:,}",
                    f"{each['flip_flops']:,}",
                    each["multipliers"],
                    f"{each['block_rams']} x {each['block_ram_kibit']} Kibit",
                    ", ".join(each["speed_grades"]),
                    "fit, " * each["fit"]
                    + ("place and route" if each["place_and_route"] else "synthesis only"),
                )
                for each in found
            ],
            right="  rrrr",
        )
        session.say("A speed grade is appended, as in lfe5u-85f-8; without one the slowest is taken.")


def boards(as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the boards that --fit and --board take by name."""
    with CommandSession(as_json, debug) as session:
        from rtlstm.boards.catalogue import BOARDS, find_board
        from rtlstm.boards.zynq import ZYNQ_BOARDS

        found: list[dict[str, Any]] = [
            {
                "name": each.name,
                "title": each.title,
                "device": each.chosen.label,
                "usual_mhz": each.usual_mhz,
                "host": "serial line",
                "bitstream": "rtlstm bitstream",
                "note": each.note,
            }
            for each in map(find_board, BOARDS)
        ]
        found += [
            {
                "name": each.name,
                "title": each.title,
                "device": each.device,
                "usual_mhz": each.usual_mhz,
                "host": "processor on the chip",
                "bitstream": "Vivado",
                "note": "",
            }
            for each in ZYNQ_BOARDS.values()
        ]
        session.fields = {"boards": found}
        columns = ("name", "title", "device", "usual_mhz", "host", "bitstream")
        session.table(
            "Boards",
            ("name", "board", "device", "usual clock", "host", "bitstream by"),
            [
                tuple(f"{each[key]:g} MHz" if key == "usual_mhz" else each[key] for key in columns)
                for each in found
            ],
            right="   r",
        )
