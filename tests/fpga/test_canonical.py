"""Netlists in canonical order: what the Verilog's text may change, and what it may not."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.small_builds import NARROW, network

from rtlstm.fpga.devices import devices
from rtlstm.fpga.netlist.canonical import canonical_netlist, plain_name
from rtlstm.fpga.synthesis import read_script
from rtlstm.fpga.tools import find_yosys, run_logged
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Reads a core as it is read for synthesis."""

    def read(verilog: str) -> dict[str, Any]:
        work = tmp_path_factory.mktemp("read")
        (work / "core.v").write_text(verilog)
        (work / "read.ys").write_text(read_script(devices()["xczu3eg"], "core"))
        run_logged(find_yosys(), ["read.ys"], folder=work, log=work / "read.log", what="reading")
        return dict(json.loads((work / "core.json").read_text()))

    return read


def reworded(verilog: str, seed: int) -> str:
    """The same circuit in other words: numbers of generated names, order of statements, names of signals."""
    draw = random.Random(seed)
    return re.sub(
        r"(?ms)^module .*?^endmodule", lambda module: _reworded_module(module[0], draw), "\n\n" + verilog
    )


def _reworded_module(text: str, draw: random.Random) -> str:
    generated = sorted(set(re.findall(r"\b_\d{3,}_", text)))
    others = dict(zip(generated, draw.sample(generated, len(generated)), strict=True))
    text = re.sub(r"\b_\d{3,}_", lambda name: others[name[0]], text)
    kept: list[str] = []
    moved: list[list[str]] = []
    places: list[int] = []
    lines = text.split("\n")
    while lines:
        line = lines.pop(0)
        if line.startswith("  assign ") and line.endswith(";"):
            statement = [line]
        elif line == "  always @(posedge clk)" and lines[0].rstrip().endswith(";"):
            statement = [line, lines.pop(0)]
        else:
            kept.append(line)
            continue
        places.append(len(kept))
        kept.append("")
        moved.append(statement)
    draw.shuffle(moved)
    for place, statement in zip(places, moved, strict=True):
        kept[place] = "\n".join(statement)
    return "\n".join(kept)


@pytest.fixture(scope="module")
def core() -> str:
    parameters = Parameters.for_family("ecp5", lanes=8, macs=2, streams=2)
    return core_to_verilog(Manifest.of("core", quantise(network(), NARROW), parameters))


@pytest.mark.slow
@pytest.mark.tools
def test_text_changes_nothing(core, netlist):
    wanted = canonical_netlist(netlist(core))
    other = reworded(core, seed=1)
    assert other.split() != core.split() and canonical_netlist(netlist(other)) == wanted


@pytest.mark.tools
def test_names_of_signals_stay_behind_their_ranks(core, netlist):
    found = canonical_netlist(netlist(core))
    assert {"core", "core_lane", "core_lanes"} <= set(found["modules"])
    lanes = found["modules"]["core.core.array"]["cells"]
    assert [name for name in lanes if name.startswith("lane")] == ["lanes0", "lanes4"]
    names = found["modules"]["core.core.sequencer.walker"]["netnames"]
    ranked = [name for name in names if re.match(r"n\d{5}\$", name)]
    assert ranked == sorted(ranked) and not any("_00" in name for name in names)
    assert plain_name("core.array.lane3.n00012$sum_TRELLIS_FF_Q") == "core.array.lane3.sum_TRELLIS_FF_Q"
    assert plain_name("core.n123456$sum") == "core.sum"


@pytest.mark.tools
def test_another_circuit_is_another_netlist(core, netlist):
    assign = re.search(r"assign _\d+_ = \w+ & (\w+);", core)
    assert assign is not None
    other = core.replace(assign[0], assign[0].replace("&", "|"), 1)
    assert canonical_netlist(netlist(other)) != canonical_netlist(netlist(core))


def test_what_is_alike_is_told_apart_by_what_it_is_connected_to():
    """Two equal registers in a ring with two others: only the way around tells which is which."""

    def ring(order: list[int], nets: dict[int, int]) -> dict[str, Any]:
        cells = {
            f"$r{place}": {
                "type": "$dff",
                "parameters": {"WIDTH": "1"},
                "connections": {"CLK": [2], "D": [nets[stage]], "Q": [nets[(stage + 1) % 4]]},
            }
            for place, stage in enumerate(order)
        }
        ports = {"clk": {"direction": "input", "bits": [2]}}
        return {"modules": {"top": {"ports": ports, "cells": cells, "netnames": {}}}}

    wanted = canonical_netlist(ring([0, 1, 2, 3], {0: 3, 1: 4, 2: 5, 3: 6}))
    assert canonical_netlist(ring([2, 0, 3, 1], {0: 9, 1: 4, 2: 7, 3: 5})) == wanted


def test_an_instance_has_another_name_than_a_port():
    """Amaranth has numbered it, because a component's part had the name of one of its ports."""
    cell = {"type": "FD", "connections": {"D": [2], "Q": [3]}, "parameters": {}, "attributes": {}}
    ports = {"sd": {"direction": "input", "bits": [2]}, "q": {"direction": "output", "bits": [3]}}
    module = {"ports": ports, "cells": {"sd$1": cell}, "netnames": {}}
    found = canonical_netlist({"modules": {"m": module}})["modules"]["m"]
    assert set(found["cells"]) == {"sd$instance"} and set(found["ports"]) == {"sd", "q"}
