"""The pictures of docs/images are drawn from their sources; timing diagrams show the core's cycles."""

import json
import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, Value
from amaranth.sim import SimulatorContext
from support.paths import ROOT

from rtlstm import Lstm, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.buses import wrappers
from rtlstm.hdl.core.core import Core
from rtlstm.hdl.sequences.part_steps import make_core
from rtlstm.host.link.framing import Frame
from rtlstm.sim.amaranth_platform import simulator
from rtlstm.spec.link import HEADER
from rtlstm.spec.registers import Register

IMAGES = ROOT / "docs" / "images"
SOURCES = sorted(IMAGES.glob("*.json"))
NARROW = QuantizationSettings(weight_bits=8, data_bits=8, gate_bits=8, cell_bits=12)
"""Widths change no cycle; small tables are simulated quickly."""


@dataclass(frozen=True)
class Row:
    """A row of a diagram: a level or a cell's label for each cycle, None where there is neither.

    ``starts`` are the cycles in which a labelled cell begins.
    """

    cells: list[str | None]
    starts: list[int]


def diagram(name: str) -> dict[str, Row]:
    rows = {}
    for row in json.loads((IMAGES / f"{name}.json").read_text())["signal"]:
        if row and row["name"] != "clk":
            labels = iter(row.get("data", []))
            cells: list[str | None] = []
            for letter in row["wave"]:
                now = cells[-1] if letter == "." else letter if letter in "01" else None
                cells.append(str(next(labels)) if letter in "2345" else now)
            assert next(labels, None) is None
            starts = [cycle for cycle, letter in enumerate(row["wave"]) if letter in "2345"]
            rows[row["name"]] = Row(cells, starts)
    assert len({len(row.cells) for row in rows.values()}) == 1
    return rows


def manifest_with(**parameters: Any) -> Manifest:
    layer = Lstm(w_ih=np.zeros((32, 4)), w_hh=np.zeros((32, 8)), bias=np.zeros(32))
    network = quantise(Network(layers=(layer,)), NARROW)
    return Manifest.of("model", network, Parameters(lanes=8, macs=4, **parameters))


def core(beat_in: int) -> Core:
    return make_core(manifest_with(beat_in=beat_in))


def simulate(
    core: Core,
    driven: list[tuple[Any, list[int]]],
    watched: Callable[[], list[Any]],
    *,
    after_first_step: bool = True,
) -> list[list[int]]:
    """Give inputs their values of each cycle; return what the others are then.

    ``watched`` is called when the core's parts exist.
    """
    found: list[list[int]] = []

    async def bench(ctx: SimulatorContext) -> None:
        ctx.set(core.y.ready, 1)
        if after_first_step:
            ctx.set(core.x.valid, 1)
            for _ in range(4 // (len(core.x.payload.data) // 8)):
                await ctx.tick().until(core.x.ready)
        ctx.set(core.x.valid, 0)
        await ctx.tick().repeat(80)
        for cycle in range(len(driven[0][1])):
            for signal, values in driven:
                ctx.set(signal, values[cycle])
            found.append([int(value) for value in (await ctx.tick().sample(*signals))[2:]])

    simulation = simulator(core)
    signals = watched()
    simulation.add_testbench(bench)
    simulation.run()
    return [list(values) for values in zip(*found, strict=True)]


def levels(row: Row) -> list[int]:
    return [int(cell == "1") for cell in row.cells]


def cycles(values: list[int]) -> list[int]:
    return [cycle for cycle, value in enumerate(values) if value]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_timing_diagram_is_drawn_from_its_source(source: Path):
    draw = runpy.run_path(str(IMAGES / "timing_diagrams.py"))["draw"]
    drawn = source.with_suffix(".svg").read_text()
    assert drawn == draw(source), "draw it again: python docs/images/draw.py"


def test_block_diagrams_are_drawn_from_their_source():
    drawn = runpy.run_path(str(IMAGES / "block_diagrams.py"))
    for name in drawn["DIAGRAMS"]:
        found = (IMAGES / f"{name}.svg").read_text()
        assert found == drawn["draw"](name), f"draw {name} again: python docs/images/draw.py"


def test_bytes_of_the_links_frame_are_its_protocols():
    shown = bytes.fromhex("".join(re.findall(r">([0-9a-f]{2})</", (IMAGES / "link-frame.svg").read_text())))
    request = Frame(type=0x11, session=0x1234, seq=0, ack=0, payload=bytes([Register.ID, 1]))
    body, line = shown[:13], shown[13:]
    assert line == request.to_wire()
    assert body[:-4] == HEADER.pack(*request[:-1]) + request.payload
    assert line.hex(" ") in (ROOT / "docs" / "link.md").read_text()


def test_every_picture_has_a_source_and_a_place():
    timing = {source.stem for source in SOURCES}
    blocks = runpy.run_path(str(IMAGES / "block_diagrams.py"))["DIAGRAMS"].keys()
    assert not timing & blocks
    found = {path.stem for path in IMAGES.glob("*.svg")} - {"accuracy-bits"}
    assert found == timing | blocks
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    for name in found:
        # With a sentence for whoever does not see it.
        assert re.search(rf"!\[[^\]]{{30,}}\]\(images/{name}\.svg\)", pages), name
    style = (ROOT / "docs" / "site" / "static" / "pages.css").read_text()
    for name in timing:
        assert style.count(f'[src$="/{name}.svg"]') == 2, f"{name} scrolls on a phone"


def test_stream_ports_are_the_cores():
    rows, dut = diagram("stream"), core(beat_in=2)
    driven = [(dut.x.valid, levels(rows["x_valid"])), (dut.y.ready, levels(rows["y_ready"]))]
    x_ready, y_valid, y_last = simulate(dut, driven, lambda: [dut.x.ready, dut.y.valid, dut.y.payload.last])
    assert x_ready == levels(rows["x_ready"])
    assert y_valid == levels(rows["y_valid"])
    assert [last & valid for last, valid in zip(y_last, y_valid, strict=True)] == levels(rows["y_last"])
    # Data are there while valid, and the next beat's begin after a transfer.
    for port, valid, ready in (("x", driven[0][1], x_ready), ("y", y_valid, driven[1][1])):
        moved = [a & b for a, b in zip(valid, ready, strict=True)]
        beat = [str(sum(moved[:cycle])) if valid[cycle] else None for cycle in range(len(moved))]
        assert rows[f"{port}_data"].cells == beat
    assert sum(levels(rows["y_valid"])) == 8 + 2


def test_register_port_is_the_cores():
    rows, dut = diagram("registers"), core(beat_in=2)
    numbers = [0 if cell is None else int(Register[cell]) for cell in rows["bus_address"].cells]
    driven = [
        (dut.bus.address, numbers),
        (dut.bus.write, levels(rows["bus_write"])),
        (dut.bus.data, [int(cell or 0) for cell in rows["bus_data"].cells]),
        (dut.bus.valid, levels(rows["bus_valid"])),
    ]
    ready, valid, data = simulate(dut, driven, lambda: [dut.bus.ready, dut.bus.read_valid, dut.bus.read_data])
    assert ready == levels(rows["bus_ready"])
    assert valid == levels(rows["bus_read_valid"]) and cycles(valid)
    word = [str(data[cycle]) if valid[cycle] else None for cycle in range(len(data))]
    assert rows["bus_read_data"].cells == word


def test_step_is_the_cores():
    rows, dut = diagram("step"), core(beat_in=4)
    manifest = dut._manifest
    issued, narrowed, results, offered = simulate(
        dut,
        [(dut.x.valid, levels(rows["x"]))],
        lambda: [dut._sequencer.token.valid, dut._drain.next_beat.valid, dut._result.valid, dut.y.valid],
    )
    units = [rows[f"unit {unit}"] for unit in range(8)]
    groups = sorted({unit.starts[0] for unit in units})
    assert [unit.cells[unit.starts[0]] for unit in units] == list("AABBCCDD")
    assert cycles(issued) == groups + rows["W_hh h"].starts
    assert cycles(levels(rows["x"])) == [0]
    assert len(groups) == manifest.cycles.array_cycles
    assert len(rows["W_hh h"].starts) == manifest.cycles.recurrent_cycles
    for row, beat, result in zip(units, cycles(narrowed)[:8], cycles(results), strict=True):
        begins = {row.cells[cycle]: cycle for cycle in row.starts}
        assert list(begins)[1:] == list("o*+hsngctH")
        assert begins["n"] == beat and begins["s"] == beat - 1 and begins["H"] == result
        pipeline = manifest.parameters.pipeline
        assert begins["*"] - begins["o"] == pipeline.operand
        assert begins["+"] - begins["*"] == pipeline.multiplier
        assert begins["g"] - begins["n"] == pipeline.narrow
    assert cycles(offered) == rows["y"].starts
    assert cycles(offered)[-1] == manifest.cycles.step_latency_cycles


def issued_and_more(dut: Core) -> list[Any]:
    token, beat = dut._sequencer.token.valid, dut._drain.next_beat
    return [
        token & ~dut._sequencer.from_input,
        token & dut._sequencer.from_input,
        beat.valid & beat.writes_partial,
        beat.valid & ~beat.writes_partial,
        dut._result.valid,
        dut.y.valid,
    ]


@pytest.mark.slow
def test_first_step_is_the_cores():
    rows, dut = diagram("first-step"), core(beat_in=4)
    recurrent, inputs, stored, completed, results, offered = simulate(
        dut, [(dut.x.valid, levels(rows["x"]))], lambda: issued_and_more(dut), after_first_step=False
    )
    told = dut._manifest.cycles
    assert cycles(levels(rows["x"])) == [0]
    assert cycles(recurrent) == rows["W_hh h"].starts
    assert cycles(inputs) == rows["W_ih x"].starts
    assert [rows["W_hh h"].cells[cycle] for cycle in cycles(recurrent)] == list("AABBCCDD" * 2)
    assert [rows["W_ih x"].cells[cycle] for cycle in cycles(inputs)] == list("ABCD")
    assert cycles(stored) + cycles(completed) == rows["narrow"].starts
    assert cycles(results) == rows["h"].starts
    assert cycles(offered) == rows["y"].starts
    for name in ("narrow", "h", "y"):
        units = [rows[name].cells[cycle] for cycle in rows[name].starts]
        assert units == list("01234567") * (len(units) // 8)
    assert len(rows["W_hh h"].starts) == 2 * told.recurrent_cycles
    assert rows["y"].starts[-1] == told.first_step_latency_cycles


@pytest.mark.slow
def test_steps_with_prefetch_are_the_cores():
    rows, dut = diagram("prefetch"), core(beat_in=4)
    shown = len(rows["x"].cells)
    found = simulate(
        dut, [(dut.x.valid, [1] * 120)], lambda: [*issued_and_more(dut), dut.x.valid & dut.x.ready]
    )
    interval = dut._manifest.cycles.step_interval_cycles
    # The second step is the first one that another was before, and has one behind it.
    begin = cycles(found[0])[0]
    recurrent, inputs, stored, completed, results, offered, taken = (
        row[begin : begin + shown] for row in found
    )
    assert [row[begin + interval : begin + interval + shown] for row in found] == [
        row[begin : begin + shown] for row in found
    ]
    assert taken == levels(rows["x"])
    assert cycles(recurrent) == rows["W_hh h"].starts
    assert cycles(inputs) == rows["W_ih x"].starts
    assert sorted(cycles(stored) + cycles(completed)) == rows["narrow"].starts
    assert cycles(results) == rows["h"].starts
    assert cycles(offered) == rows["y"].starts
    assert [rows["W_hh h"].cells[cycle] for cycle in cycles(recurrent)] == list("AABBCCDD" * 2)
    assert [rows["W_ih x"].cells[cycle] for cycle in cycles(inputs)] == list("ABCD")
    assert rows["W_hh h"].starts[8] == interval
    for name in ("narrow", "h", "y"):
        units = "".join(rows[name].cells[cycle] or "" for cycle in rows[name].starts)
        assert ("01234567" * 3).endswith(units)


def simulate_bus(bus: str, driven: dict[str, list[int]], watched: list[str]) -> list[list[int]]:
    """Give the ports of a bus wrapper their values of each cycle; return what the others are then."""
    found: list[list[int]] = []

    def add_core(m: Module, manifest: Manifest, reset: Value) -> Core:
        m.submodules.core = ResetInserter(reset)(made := make_core(manifest))
        return made

    async def bench(ctx: SimulatorContext) -> None:
        await ctx.tick().repeat(20)
        for values in zip(*driven.values(), strict=True):
            for name, value in zip(driven, values, strict=True):
                ctx.set(getattr(dut, name), value)
            found.append([int(value) for value in (await ctx.tick().sample(*signals))[2:]])

    dut = wrappers.wrapper(manifest_with(bus=bus))
    assert dut
    signals = [getattr(dut, name) for name in watched]
    # A build has an instance of its Verilog there.
    with patch.object(wrappers, "core_instance", add_core):
        simulation = simulator(dut)
        simulation.add_testbench(bench)
        simulation.run()
    return [list(values) for values in zip(*found, strict=True)]


def shown_while(valid: list[int], data: list[int]) -> list[str | None]:
    return [str(word) if there else None for there, word in zip(valid, data, strict=True)]


@pytest.mark.slow
def test_wishbone_is_the_wrappers():
    rows = diagram("wishbone")
    request = levels(rows["wb_stb"])
    ack, word, stall = simulate_bus(
        "wishbone",
        {
            "wb_cyc": request,
            "wb_stb": request,
            "wb_we": levels(rows["wb_we"]),
            "wb_sel": [0b1111] * len(request),
            "wb_adr": [int(Register[cell]) if cell else 0 for cell in rows["wb_adr"].cells],
            "wb_dat_w": [int(cell or 0) for cell in rows["wb_dat_w"].cells],
        },
        ["wb_ack", "wb_dat_r", "wb_stall"],
    )
    assert ack == levels(rows["wb_ack"]) == [1 - level for level in stall]
    read = [a & ~b & 1 for a, b in zip(ack, levels(rows["wb_we"]), strict=True)]
    assert rows["wb_dat_r"].cells == shown_while(read, word)
    begins = [cycle for cycle, now in enumerate(request) if now and not request[cycle - 1]]
    # As the table says: the wrapper's register, a write and a read of the core's.
    assert [end - begin for begin, end in zip(begins, cycles(ack), strict=True)] == [3, 4, 7]


@pytest.mark.slow
def test_axi_lite_is_the_wrappers():
    rows = diagram("axi-lite")
    write, length = levels(rows["awvalid, wvalid"]), len(rows["bvalid"].cells)
    arready, rvalid, word, awready, wready, bvalid = simulate_bus(
        "axilite",
        {
            "s_axi_araddr": [int(cell or "0", 16) for cell in rows["araddr"].cells],
            "s_axi_arvalid": levels(rows["arvalid"]),
            "s_axi_rready": [1] * length,
            "s_axi_awaddr": [int(cell or "0", 16) for cell in rows["awaddr"].cells],
            "s_axi_awvalid": write,
            "s_axi_wdata": [int(cell or 0) for cell in rows["wdata"].cells],
            "s_axi_wstrb": [0b1111] * length,
            "s_axi_wvalid": write,
            "s_axi_bready": [1] * length,
        },
        [f"s_axi_{name}" for name in ("arready", "rvalid", "rdata", "awready", "wready", "bvalid")],
    )
    assert arready == levels(rows["arready"])
    assert awready == wready == levels(rows["awready, wready"])
    assert (rvalid, bvalid) == (levels(rows["rvalid"]), levels(rows["bvalid"]))
    assert rows["rdata"].cells == shown_while(rvalid, word)
    addresses = [rows["araddr"].cells[cycle] for cycle in rows["araddr"].starts]
    assert addresses == [f"{4 * register:x}" for register in (Register.X_ROOM, Register.ROW)]
    # As the table says: the wrapper's register, a read and a write of the core's.
    begins = cycles(levels(rows["arvalid"]))
    assert [end - begin for begin, end in zip(begins, cycles(rvalid), strict=True)] == [4, 8]
    assert cycles(bvalid)[0] - cycles(write)[0] == 5
