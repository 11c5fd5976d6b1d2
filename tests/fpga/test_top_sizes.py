"""What a board's top takes beside the core, against synthesis of tops around an empty core."""

import json
from pathlib import Path

import numpy as np
import pytest

from rtlstm import ConfigurationError, Dense, Lstm, Manifest, Network, Parameters
from rtlstm.boards.board import find_timing
from rtlstm.boards.catalogue import find_board, find_target
from rtlstm.boards.ethernet import Ethernet
from rtlstm.boards.top import TOP, board_verilog
from rtlstm.fpga.estimate import estimate, top_sizes
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.netlist.ecp5 import count_chains
from rtlstm.fpga.netlist.harness import Port, read_ports
from rtlstm.fpga.synthesis import NETLIST, Top, synthesise
from rtlstm.fpga.tools import find_yosys
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog

pytestmark = pytest.mark.tools


def manifest(family: str, inputs: int, outputs: int, bits: int, beat: int) -> Manifest:
    units = 4
    lstm = Lstm(w_ih=np.ones((4 * units, inputs)), w_hh=np.ones((4 * units, units)), bias=np.zeros(4 * units))
    dense = Dense(weight=np.ones((outputs, units)), bias=np.zeros(outputs))
    settings = QuantizationSettings(weight_bits=8, data_bits=bits)
    quantised = quantise(Network(layers=(lstm, dense)), settings)
    parameters = Parameters.for_family(family, lanes=4, macs=beat, beat_in=beat, beat_out=beat)
    return Manifest.of("dut", quantised, parameters)


def empty(ports: tuple[Port, ...]) -> str:
    """A core that does next to nothing: the top is synthesised without it anyway."""
    heads = (f"{port.direction} [{port.width - 1}:0] {port.name}" for port in ports)
    output = next(port for port in ports if port.direction == "output")
    body = f"reg later; always @(posedge clk) later <= rst; assign {output.name} = later;"
    return f"module dut({', '.join(heads)});\n  {body}\nendmodule\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "bits", "beat", "ethernet"),
    [
        ("icebreaker", 6, 20, 8, 1, None),
        ("ulx3s-25f", 40, 10, 16, 2, None),
        ("crosslink-nx", 6, 20, 8, 1, None),
        ("colorlight-i5", 6, 20, 8, 1, Ethernet(ip="192.168.1.50", mac="02:00:c0:a8:01:32", peer="first")),
    ],
)
def test_against_synthesis(
    name: str, inputs: int, outputs: int, bits: int, beat: int, ethernet: Ethernet | None, tmp_path: Path
) -> None:
    board = find_board(name)
    device = board.chosen.device
    made = manifest(device.family, inputs, outputs, bits, beat)
    core = core_to_verilog(made)
    top = board_verilog(board, made, find_timing(board, 40, ethernet=ethernet), core)
    core = empty(read_ports(core, "dut"))
    synthesis = synthesise(core, "dut", device, find_yosys(), tmp_path, top=Top(TOP, top))
    taken = synthesis.harness
    estimates = board.family.need_estimates()
    found = top_sizes(made, estimates, ethernet is not None)
    assert found.block_rams == taken.block_rams and found.multipliers == taken.multipliers == 0
    assert found.luts == pytest.approx(taken.luts, rel=0.04)
    assert found.ffs == pytest.approx(taken.ffs, rel=0.04)
    if device.chain_tiles is not None:
        chains = count_chains(json.loads((synthesis.folder / NETLIST).read_text()))
        more = 0 if ethernet is None else estimates.ethernet.chain_tiles
        assert pytest.approx(chains.tiles, rel=0.05) == estimates.top_chain_tiles + more


def test_memories_grow_with_the_steps() -> None:
    ice40 = fpga_family("ice40").need_estimates()
    usual = top_sizes(manifest("ice40", 6, 20, 8, 1), ice40).block_rams
    assert usual == 11
    # Two steps of 3,000 bytes take 8 KiB.
    assert top_sizes(manifest("ice40", 3000, 20, 8, 1), ice40).block_rams == usual + 12
    with pytest.raises(ConfigurationError, match="use another bus"):
        top_sizes(manifest("ice40", 20_000, 1, 8, 1), "ice40")


def test_a_board_with_ethernet_has_room_for_it() -> None:
    ecp5 = fpga_family("ecp5").need_estimates()
    made = manifest("ecp5", 6, 20, 8, 1)
    serial, ethernet = top_sizes(made, ecp5), top_sizes(made, ecp5, ethernet=True)
    assert (ethernet.luts - serial.luts, ethernet.block_rams - serial.block_rams) == (5735, 8)
    target = find_target("colorlight-i5")
    assert target.board.ethernet and not find_target("ulx3s-25f").board.ethernet
    whole = estimate(made, target.chosen, board=target.board)
    alone = estimate(made, target.chosen)
    assert whole is not None and alone is not None and whole.luts - alone.luts == ethernet.luts
