"""``rtlstm boards`` and ``rtlstm devices``: what other commands take by name, and which suits a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rtlstm.cli.commands import generate_command
from rtlstm.cli.console import Console
from rtlstm.cli.data import load_inputs, load_lengths
from rtlstm.cli.options import (
    CALIBRATE,
    CalibrationBatchFirstOption,
    CalibrationLengthsOption,
    CalibrationPadOption,
    command,
)
from rtlstm.cli.results import Field, Figure, Found, Table, Text
from rtlstm.gen.frontends.reading import ReadOptions
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import option_values


@command(QuantizationSettings, ReadOptions)
def boards(
    console: Console,
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="A model file, as for rtlstm generate, to compare boards for."),
    ] = None,
    *,
    options: Mapping[str, Any],
    calibration: Annotated[Path | None, CALIBRATE] = None,
    calibration_lengths: CalibrationLengthsOption = None,
    batch_first: CalibrationBatchFirstOption = None,
    pad: CalibrationPadOption = "back",
) -> None:
    """List the boards that --fit and --board take by name; with a model, say which one to buy for it.

    For each board and link: what --fit BOARD --fit-anyway would choose, its error, and the time of a step in
    the core, at the board's pins and at the host. All times are estimates before synthesis.
    """
    if model is None:
        given = calibration or calibration_lengths or options
        if given or batch_first is not None or pad != "back":
            raise ConfigurationError("`calibration` and options are for a model: give MODEL, too")
        console.show(_LIST, boards=_listed())
        return
    if calibration is None:
        raise ConfigurationError(
            "which board suits a model depends on the error there: give typical inputs (`calibration`)"
        )
    from rtlstm.boards.catalogue import PRICED, usable_boards
    from rtlstm.boards.zynq import ZYNQ_BOARDS
    from rtlstm.gen.builds.generate import BuildRequest, default_name
    from rtlstm.gen.builds.on_board import compare_boards
    from rtlstm.gen.frontends import read_model
    from rtlstm.gen.quantise.calibration import read_data

    settings = QuantizationSettings(**option_values(QuantizationSettings, options))
    x, lengths = load_inputs(calibration, "the calibration data"), load_lengths(calibration_lengths)
    read = read_model(model, ReadOptions(**option_values(ReadOptions, options)))
    x = read.looked_up(x, "calibration", lengths, batch_first, pad)
    data = read_data(read, x, lengths, None, batch_first, pad)
    request = BuildRequest(read=read, settings=settings, data=data)
    with console.progress() as progress:
        offers = compare_boards(request, usable_boards(), progress)
    name = default_name(read)
    found = [offer.model_dump(mode="json") for offer in offers]
    console.show(_OFFERS, name=name, boards=found, priced=PRICED)
    console.note(BOARDS_NOTE)
    console.note(
        "the software's time is that of the machine in docs/boards.md, which is assumed for yours; "
        f"{', '.join(ZYNQ_BOARDS)} are left out, because their clock is an assumption of yours"
    )
    best = next(offer for offer in offers if offer.cheapest)
    given = {
        "fit": best.board,
        "fit_anyway": bool(best.build and best.build.changed) or None,
        "calibration": str(calibration),
        "calibration_lengths": calibration_lengths,
        "batch_first": batch_first,
        "pad": None if pad == "back" else pad,
        **options,
    }
    console.next = generate_command(model, f"build/{name}", given)


BOARDS_NOTE = (
    "clock and size are estimates, without LiteEth on a board with Ethernet; place and route decides. A USB "
    "adapter is assumed to add 1 ms each way to a step alone"
)
"""What to know of the times of boards."""


def link_rows(offers: list[Found]) -> list[Found]:
    """Return a row for each link of each board that fits, of offers as JSON."""
    return [
        {**offer, **offer["build"], "wire": link}
        for offer in offers
        if offer["build"]
        for link in offer["build"]["links"]
    ]


def _error(row: Found) -> str:
    if row["decisions"]:
        return f"{row['decisions_changed']:,} of {row['decisions']:,} changed"
    return f"{100 * row['rms_error'] / row['spread']:.2g} %" if row["spread"] else f"{row['rms_error']:.3g}"


def _time(name: str) -> Field:
    def reading(row: Found) -> str:
        value = row["wire"][f"{name}_us"]
        return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"

    return Figure(name, reading)


def _refusals(found: Found) -> str | None:
    refused = [f"{each['board']}: {each['refusal']}" for each in found["boards"] if each["refusal"]]
    return "\n".join(refused) or None


def _cheapest(found: Found) -> str:
    best = next(each for each in found["boards"] if each["cheapest"])
    name, price = f"{best['board']} ({best['title']})", f"{best['price']}, as of {found['priced']}"
    return f"The cheapest that fits is {name}: {price}."


BOARD_COLUMNS = (
    Field("", lambda row: "*" if row["cheapest"] else None),
    Field("board", "{board}"),
    Field("link", lambda row: row["wire"]["link"]),
    Figure("weights", lambda row: f"{row['weight_bits']}{' (fewer)' * bool(row['changed'])}"),
    Figure("error", _error),
    Figure("MHz", "{clock_mhz:.4g}"),
    *map(_time, ("core", "wire", "pins", "host")),
    Figure("steps/s", lambda row: f"{row['wire']['host_steps_per_second']:,.0f}"),
)
"""Columns of :func:`link_rows`."""

_OFFERS = (
    Table(
        lambda found: f"Boards for {found['name']}: a step alone in us, and steps a second of many at once",
        lambda found: link_rows(found["boards"]),
        Field("price", "{price}"),
        *BOARD_COLUMNS,
    ),
    Text(_refusals),
    Text(_cheapest),
)


def _listed() -> list[dict[str, Any]]:
    from rtlstm.boards.catalogue import usable_boards
    from rtlstm.boards.zynq import ZYNQ_BOARDS

    found: list[dict[str, Any]] = [
        {
            "name": each.name,
            "title": each.title,
            "device": each.chosen.label,
            "most_mhz": float(each.clock_range[1] / 1_000_000),
            "host": ", ".join(each.links),
            "bitstream": "rtlstm bitstream",
            "note": each.note,
        }
        for each in usable_boards()
    ]
    return found + [
        {
            "name": each.name,
            "title": each.title,
            "device": each.device,
            "most_mhz": each.processor.most_mhz,
            "host": "processor on the chip",
            "bitstream": "Vivado",
            "note": "",
        }
        for each in ZYNQ_BOARDS.values()
    ]


_LIST = (
    Table(
        "Boards",
        lambda found: found["boards"],
        Field("name", "{name}"),
        Field("board", "{title}"),
        Field("device", "{device}"),
        Figure("highest clock", "{most_mhz:g} MHz"),
        Field("link", "{host}"),
        Field("bitstream by", "{bitstream}"),
    ),
)


@command()
def devices(console: Console) -> None:
    """List the FPGAs that --fit and --device take by name."""
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
        Field("name", "{name}"),
        Field("family", "{family}"),
        Figure("LUTs", "{luts:,}"),
        Figure("flip-flops", "{flip_flops:,}"),
        Figure("multipliers", "{multipliers:,}"),
        Figure("block RAMs", "{block_rams} x {block_ram_kibit} Kibit"),
        Field("grades", lambda each: ", ".join(each["speed_grades"])),
        Field("for", _uses),
    ),
    Text(lambda found: "\n".join(dict.fromkeys(each["note"] for each in found["devices"] if each["note"]))),
    Text("A speed grade is appended, as in lfe5u-85f-8; without one the slowest is taken."),
)
