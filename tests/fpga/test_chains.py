"""Carry chains: found in netlists by hand, and how full a device may be of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.families.base import estimated_families, fpga_family
from rtlstm.fpga.netlist.ecp5 import chain_tiles, count_chains
from rtlstm.fpga.resources import RESERVE, check_chains, fill_limits
from rtlstm.spec.errors import ConfigurationError


def carry(carry_in: Any, carry_out: Any) -> dict[str, Any]:
    directions = {"CIN": "input", "COUT": "output"}
    connections = {"CIN": [carry_in], "COUT": [carry_out]}
    return {"type": "CCU2C", "port_directions": directions, "connections": connections}


def table(*inputs: Any) -> dict[str, Any]:
    return {"type": "LUT4", "port_directions": {"A": "input"}, "connections": {"A": list(inputs)}}


def lengths(*cells: dict[str, Any], port: tuple[Any, ...] = ()) -> tuple[int, ...]:
    ports = {"q": {"bits": list(port)}}
    named = {f"cell{index}": cell for index, cell in enumerate(cells)}
    return count_chains({"modules": {"top": {"cells": named, "ports": ports}}}).cells


def test_chains_are_followed():
    three = (carry("x", 10), carry(10, 11), carry(11, "x"))
    assert lengths(*three) == (3,)
    assert lengths(three[2], three[0], three[1]) == (3,)
    assert lengths(*three, carry("x", "x")) == (3, 1)


def test_ends_that_are_connected_take_a_cell():
    assert lengths(carry("0", "x")) == lengths(carry(5, "x")) == (2,)
    assert lengths(carry("x", 10), table(10)) == (2,)
    assert lengths(carry("x", 10), port=(10,)) == (2,)
    # Nobody reads the last carry; nextpnr cuts it.
    assert lengths(carry("x", 10)) == (1,)
    # A carry in the middle is read by a table, too.
    assert lengths(carry("x", 10), carry(10, "x"), table(10)) == (3,)


def test_a_chain_begins_at_a_tile():
    assert [chain_tiles(cells) for cells in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]
    found = count_chains({"modules": {"top": {"cells": {"a": carry("x", "x"), "b": carry("x", "x")}}}})
    assert (found.cells, found.tiles) == ((1, 1), 2)


@pytest.mark.parametrize("family", estimated_families())
def test_limits_are_those_of_routed_designs(family):
    estimates = fpga_family(family).need_estimates()
    limits, tried = fill_limits(estimates), estimates.routed
    assert all(find_device(each.device).device.family == family for each in tried)
    routed = [each for each in tried if each.mhz is not None]
    if limits.cells == estimates.assumed_fill:
        assert all(each.cell_share < 100 * (limits.cells + RESERVE) for each in routed)
    else:
        assert any(each.cell_share == pytest.approx(100 * (limits.cells + RESERVE)) for each in routed)
    device = fpga_family(family).devices[0]
    assert (limits.chains is None) == (device.chain_tiles is None)
    # Without open place and route, all shares are assumed.
    assert bool(routed) == device.routable
    assert (limits.memories, limits.most_memories(10)) == ((1, 10) if routed else (0.8, 8))
    for failed in (each for each in tried if each.mhz is None):
        beyond = failed.chain_share is not None and failed.chain_share > 100 * (limits.chains or 1)
        assert beyond or failed.cell_share > 100 * limits.cells, failed


def test_the_page_has_what_was_tried():
    page = (ROOT / "notes" / "implement.md").read_text()
    tried = [each for name in estimated_families() for each in fpga_family(name).need_estimates().routed]
    for each in tried:
        reached = "no legal placement" if each.mhz is None else f"{each.mhz} MHz"
        (row,) = re.findall(rf"^\| {each.device} \|.* {each.cell_share} %.*\| {reached} \|$", page, re.M)
        assert each.chain_share is None or f" {each.chain_share} %" in row


def test_a_netlist_with_too_many_chains_is_not_placed(tmp_path: Path):
    device = find_device("lfe5u-12f").device
    netlist = tmp_path / "netlist.json"

    def refusal(chains: int, **how: object) -> str:
        cells = {f"cell{index}": carry("x", "x") for index in range(chains)}
        netlist.write_text(json.dumps({"modules": {"top": {"cells": cells}}}))
        try:
            check_chains("dut", netlist, device, **how)
        except ConfigurationError as error:
            return str(error)
        return ""

    tiles, limit = device.chain_tiles, fill_limits(fpga_family("ecp5").need_estimates()).chains
    assert refusal(int(limit * tiles)) == ""
    said = refusal(int(limit * tiles) + 1, board="ulx3s-12f")
    assert (
        "that designs known to be routed take" in said and "fit='ulx3s-12f'" in said and "insist=True" in said
    )
    assert refusal(tiles, insist=True) == ""
    assert "tiles (of 3,036); generate it with" in refusal(tiles + 1, insist=True)
    netlist.unlink()
    for other in ("up5k", "xc7a35t", "lifcl-40"):
        check_chains("dut", netlist, find_device(other).device)
