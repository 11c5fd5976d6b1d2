"""``rtlstm devices``: what the other commands take by name."""

from typing import Any

from rtlstm.cli.console import Console
from rtlstm.cli.options import DebugOption, JsonOption
from rtlstm.cli.results import Field, Found, Table, Text


def devices(as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the FPGAs that --fit and --device take by name."""
    with Console(as_json, debug) as console:
        from rtlstm.fpga.devices import devices as known_devices
        from rtlstm.fpga.families.base import estimated_families, fpga_family

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
                "clock_assumed": fpga_family(each.family).assumes_clock,
                "place_and_route": each.routable,
                "note": each.note,
            }
            for each in known_devices().values()
        ]
        console.show(_DEVICES, devices=found)


def _uses(device: Found) -> str:
    fit = "fit with --clock, " if device["clock_assumed"] else "fit, " * device["fit"]
    return fit + ("place and route" if device["place_and_route"] else "synthesis only")


_DEVICES = (
    Table(
        "Devices",
        lambda found: found["devices"],
        (
            Field("name", "{name}"),
            Field("family", "{family}"),
            Field("LUTs", "{luts:,}", right=True),
            Field("flip-flops", "{flip_flops:,}", right=True),
            Field("multipliers", "{multipliers:,}", right=True),
            Field("block RAMs", "{block_rams} x {block_ram_kibit} Kibit", right=True),
            Field("grades", lambda each: ", ".join(each["speed_grades"])),
            Field("for", _uses),
        ),
    ),
    Text(lambda found: "\n".join(dict.fromkeys(each["note"] for each in found["devices"] if each["note"]))),
    Text("A speed grade is appended, as in lfe5u-85f-8; without one the slowest is taken."),
)
