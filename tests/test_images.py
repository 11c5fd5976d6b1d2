"""The timing diagrams of docs/images show each cycle as the core has it, and are drawn from their sources."""

import json
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.sim import SimulatorContext
from support.paths import ROOT

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.core.core import Core
from rtlstm.sim.amaranth_platform import simulator
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Lstm, Network
from rtlstm.spec.parameters import Parameters
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


def core(beat_in: int) -> Core:
    layer = Lstm(w_ih=np.zeros((32, 4)), w_hh=np.zeros((32, 8)), bias=np.zeros(32))
    network = quantise(Network(layers=(layer,)), NARROW)
    parameters = Parameters(lanes=8, macs=4, beat_in=beat_in)
    return Core(Manifest.create("model", network.shapes, parameters, network.numerics))


def simulate(
    core: Core, driven: list[tuple[Any, list[int]]], watched: Callable[[], list[Any]]
) -> list[list[int]]:
    """Give inputs their values of each cycle, after a first step; return what the others are then.

    ``watched`` is called when the core's parts exist.
    """
    found: list[list[int]] = []

    async def bench(ctx: SimulatorContext) -> None:
        ctx.set(core.y.ready, 1)
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
def test_picture_is_drawn_from_its_source(source: Path):
    draw = runpy.run_path(str(IMAGES / "draw.py"))["draw"]
    drawn = source.with_suffix(".svg").read_text()
    assert drawn == draw(source), "draw it again: python docs/images/draw.py"


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
    assert valid == levels(rows["bus_read_valid"])
    assert cycles(valid)
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
        assert begins["n"] == beat and begins["s"] == beat - 1
        assert begins["H"] == result
        pipeline = manifest.parameters.pipeline
        assert begins["*"] - begins["o"] == pipeline.operand
        assert begins["+"] - begins["*"] == pipeline.multiplier
        assert begins["g"] - begins["n"] == pipeline.narrow
    assert cycles(offered) == rows["y"].starts
    assert cycles(offered)[-1] == manifest.cycles.step_latency_cycles
