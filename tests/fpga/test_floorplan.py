"""Sites of hard blocks: every block one, none twice, lanes in one piece."""

import itertools
import re
from copy import deepcopy
from typing import Any

import pytest

from rtlstm.fpga.netlist.ecp5 import DIES, floorplan, plan


def lane_name(number: int) -> str:
    """Name of a lane among its four."""
    return f"lanes{number - number % 4}.lane{number % 4}"


def blocks(lanes: int, macs: int, rams: int, others: int = 8) -> dict[str, str]:
    """Cells of a core with so many multipliers and block RAMs to a lane."""
    kinds = {
        f"core.core.array.{lane_name(i)}.product{k}.block": "MULT18X18D"
        for i in range(lanes)
        for k in range(macs)
    }
    kinds |= {
        f"core.core.array.{lane_name(i)}.bank.ram{k}": "DP16KD" for i in range(lanes) for k in range(rams)
    }
    kinds |= {f"core.core.gate_unit0.m{k}": "MULT18X18D" for k in range(others)}
    kinds |= {f"core.core.gate_unit0.table{k}": "DP16KD" for k in range(others)}
    return kinds | {f"core.core.array.{lane_name(0)}.sum{k}": "LUT4" for k in range(9)}


@pytest.mark.parametrize(
    ("device", "lanes", "macs", "rams"),
    [
        ("lfe5u-85f", 36, 4, 3),
        ("lfe5u-85f", 28, 5, 4),
        ("lfe5u-85f", 48, 3, 2),
        ("lfe5u-45f", 16, 4, 4),
        ("lfe5u-25f", 4, 5, 8),
    ],
)
def test_every_block_has_a_site_of_its_own(device: str, lanes: int, macs: int, rams: int) -> None:
    kinds = blocks(lanes, macs, rams)
    sites = plan(kinds, DIES[device])
    assert set(sites) == {name for name, kind in kinds.items() if kind != "LUT4"}
    assert len({site.bel for site in sites.values()}) == len(sites)
    assert all(
        site.name.startswith("MULT" if kinds[name] == "MULT18X18D" else "EBR") for name, site in sites.items()
    )
    for lane in range(lanes):
        mine = [
            site for name, site in sites.items() if f"array.{lane_name(lane)}." in name and "product" in name
        ]
        rows = {site.y for site in mine}
        # In one slice or two, perhaps on both sides of what stands in the middle, unless the line
        # turns to the next row in between.
        assert len(rows) > 1 or max(site.x for site in mine) - min(site.x for site in mine) <= 36


def side_by_side(cores: int, **size: int) -> dict[str, Any]:
    """A netlist with so many cores in the harness."""
    kinds = {"port0_x_TRELLIS_FF_Q": "TRELLIS_FF"}
    for number in range(cores):
        kinds |= {name.replace("core.", f"core{number}.", 1): kind for name, kind in blocks(**size).items()}
    cells = {name: {"type": kind} for name, kind in kinds.items()}
    return {"modules": {"top": {"attributes": {"top": "1"}, "cells": cells}}}


@pytest.mark.parametrize(
    ("cores", "lanes", "macs", "rams"),
    [(4, 4, 3, 4), (4, 9, 3, 4), (13, 2, 0, 1), (2, 16, 4, 4), (3, 1, 0, 1), (5, 8, 2, 2)],
)
def test_each_of_several_cores_has_a_part_of_its_own(cores: int, lanes: int, macs: int, rams: int) -> None:
    netlist = side_by_side(cores, lanes=lanes, macs=macs, rams=rams)
    assert floorplan(netlist, "lfe5u-85f") == cores * (lanes * (macs + rams) + 2 * 8)
    bels = {
        name: cell["attributes"]["BEL"]
        for name, cell in netlist["modules"]["top"]["cells"].items()
        if "attributes" in cell
    }
    assert len(set(bels.values())) == len(bels)
    boxes = []
    for number in range(cores):
        mine = [bel for name, bel in bels.items() if name.startswith(f"core{number}.")]
        xs, ys = ([int(re.match(r"X(\d+)/Y(\d+)/", bel)[axis]) for bel in mine] for axis in (1, 2))
        boxes.append((min(xs), max(xs), min(ys), max(ys)))
    for (left, right, top, bottom), other in itertools.combinations(boxes, 2):
        assert right < other[0] or other[1] < left or bottom < other[2] or other[3] < top


def test_cores_that_exceed_their_parts_are_left_to_the_placer() -> None:
    # However the die is cut, one core in four gets no more than 36 multipliers.
    assert floorplan(side_by_side(4, lanes=10, macs=3, rams=1), "lfe5u-85f") == 0
    assert floorplan(side_by_side(60, lanes=0, macs=0, rams=0, others=1), "lfe5u-85f") == 0


def test_blocks_of_portable_cores_are_left_to_the_placer() -> None:
    """Their names say nothing of lanes and units."""
    cells = {f"core{core}.p{k}_MULT18X18D_P0": {"type": "MULT18X18D"} for core in range(2) for k in range(20)}
    module = {"attributes": {"top": "1"}, "cells": cells}
    assert floorplan({"modules": {"top": module}}, "lfe5u-85f") == 0


def test_next_lane_is_near() -> None:
    sites = plan(blocks(36, 4, 3), DIES["lfe5u-85f"])
    places = [sites[f"core.core.array.{lane_name(i)}.product0.block"] for i in range(36)]
    steps = [abs(a.x - b.x) + abs(a.y - b.y) for a, b in itertools.pairwise(places)]
    assert sorted(steps)[len(steps) // 2] <= 9 and max(steps) <= 60


def test_units_with_lanes_of_their_own_stand_beside_them() -> None:
    """Where every unit reads the totals of its own four lanes alone."""
    units = 10
    kinds = blocks(4 * units, 3, 1, others=0)
    kinds |= {
        f"core.core.gate_unit{unit}.m{k}_multiplier.b": "MULT18X18D"
        for unit in range(units)
        for k in range(3)
    }
    sites = plan(kinds, DIES["lfe5u-85f"])
    assert len({site.bel for site in sites.values()}) == sum(kind != "LUT4" for kind in kinds.values())
    for unit in range(units):
        mine = [site for name, site in sites.items() if f"gate_unit{unit}." in name]
        lanes = [
            sites[f"core.core.array.{lane_name(4 * unit + lane)}.product{k}.block"]
            for lane in range(4)
            for k in range(3)
        ]
        # In the slice of the last lane, or the next one, perhaps where the line turns to the next row.
        assert min(abs(a.x - b.x) + abs(a.y - b.y) for a in mine for b in lanes) in {*range(10), 24}


@pytest.mark.parametrize(("lanes", "macs", "rams"), [(3, 4, 3), (40, 4, 1), (36, 4, 6)])
def test_few_multipliers_or_too_many_blocks_are_left_to_the_placer(lanes: int, macs: int, rams: int) -> None:
    assert plan(blocks(lanes, macs, rams), DIES["lfe5u-85f"]) == {}


def test_lanes_of_two_kinds() -> None:
    """The weights of lanes without multipliers are beside the last of those that have some."""
    kinds = {
        name: kind
        for name, kind in blocks(36, 1, 2).items()
        if kind == "DP16KD" or not any(lane_name(lane) + "." in name for lane in range(30, 36))
    }
    sites = plan(kinds, DIES["lfe5u-85f"])
    assert len(sites) == len(kinds) - 9
    last = sites[f"core.core.array.{lane_name(29)}.product0.block"]
    for lane in range(30, 36):
        site = sites[f"core.core.array.{lane_name(lane)}.bank.ram0"]
        assert abs(site.x - last.x) + abs(site.y - last.y) <= 40


def test_netlist_gets_the_sites() -> None:
    cells = {name: {"type": kind} for name, kind in blocks(8, 4, 2).items()}
    netlist: dict[str, Any] = {"modules": {"top": {"attributes": {"top": "1"}, "cells": cells}}}
    before = deepcopy(netlist)
    assert floorplan(netlist, "up5k") == 0 and netlist == before
    assert floorplan(netlist, "lfe5u-85f") == 8 * 6 + 16
    placed = netlist["modules"]["top"]["cells"]
    assert sum("BEL" in cell.get("attributes", {}) for cell in placed.values()) == 8 * 6 + 16


@pytest.mark.parametrize(
    ("memory", "multiplier"),
    [
        ("forget_gate.table", "kept_multiplier"),
        ("cells", "kept_multiplier"),
        ("input_gate.table", "added_multiplier"),
        ("candidate_gate.table", "added_multiplier"),
        ("cell_tanh.table", "hidden_multiplier"),
    ],
)
def test_memories_of_a_gate_unit_are_near_the_multipliers_they_feed(memory: str, multiplier: str) -> None:
    kinds = blocks(48, 3, 1, others=0)
    products = ("added_multiplier", "hidden_multiplier", "kept_multiplier")
    tables = [f"{gate}.table" for gate in ("input_gate", "forget_gate", "candidate_gate", "output_gate")]
    for unit in range(3):
        kinds |= {f"core.core.gate_unit{unit}.{name}.block.m": "MULT18X18D" for name in products}
        kinds |= {
            f"core.core.gate_unit{unit}.{name}.block.ram": "DP16KD"
            for name in (*tables, "cell_tanh.table", "cells")
        }
    sites = plan(kinds, DIES["lfe5u-85f"])
    for unit in range(3):
        ram = sites[f"core.core.gate_unit{unit}.{memory}.block.ram"]
        fed = sites[f"core.core.gate_unit{unit}.{multiplier}.block.m"]
        # The rows of both kinds are 12 apart.
        assert abs(ram.x - fed.x) <= 18 and abs(ram.y - fed.y) == 12


def test_table_with_slopes_is_near_their_multiplier() -> None:
    kinds = blocks(36, 4, 3, others=0)
    for gate in ("input_gate", "forget_gate", "candidate_gate", "output_gate", "cell_tanh"):
        kinds |= {
            f"core.core.gate_unit0.{gate}.rise_multiplier.block.m": "MULT18X18D",
            f"core.core.gate_unit0.{gate}.table.block.ram": "DP16KD",
        }
    kinds |= {f"core.core.gate_unit0.{name}_multiplier.m": "MULT18X18D" for name in ("kept", "added")}
    sites = plan(kinds, DIES["lfe5u-85f"])
    ram, fed = (
        sites[f"core.core.gate_unit0.forget_gate.{name}"]
        for name in ("table.block.ram", "rise_multiplier.block.m")
    )
    assert abs(ram.x - fed.x) <= 9 and abs(ram.y - fed.y) == 12


def test_multipliers_of_a_gate_unit_are_side_by_side() -> None:
    names = [
        f"{gate}.rise" for gate in ("input_gate", "forget_gate", "candidate_gate", "output_gate", "cell_tanh")
    ]
    names += ["kept", "added", "hidden"]
    kinds = blocks(40, 3, 1, others=0)
    kinds |= {
        f"core.gate_unit{unit}.{name}_multiplier.m": "MULT18X18D" for unit in range(4) for name in names
    }
    sites = plan(kinds, DIES["lfe5u-85f"])
    for unit in range(4):
        mine = [sites[f"core.gate_unit{unit}.{name}_multiplier.m"] for name in names]
        assert len({site.y for site in mine}) == 1
        # Eight multipliers are two slices.
        assert max(site.x for site in mine) - min(site.x for site in mine) <= 11 + 5
