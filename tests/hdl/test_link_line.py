"""The link's line side under Icarus, against other people's UART and COBS."""

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from cocotb_tools.runner import get_runner
from support.quick import quick

from rtlstm.hdl.emit.verilog import to_verilog
from rtlstm.hdl.link.framing import FrameReceiver, FrameSender
from rtlstm.hdl.link.uart import Uart, check_divisor
from rtlstm.spec.errors import ConfigurationError

pytestmark = pytest.mark.rtl


@cache
def uart(divisor: Fraction) -> str:
    return to_verilog({"dut": Uart(divisor)})


def run(verilog: str, test: str, folder: Path, variables: Mapping[str, str]) -> None:
    (folder / "dut.v").write_text(verilog)
    runner = get_runner("icarus")
    runner.build(sources=[folder / "dut.v"], hdl_toplevel="dut", build_dir=folder, timescale=("1ns", "1ns"))
    results = runner.test(
        test_module="support.testbenches.link_line_testbench",
        test_filter=test,
        hdl_toplevel="dut",
        build_dir=folder,
        test_dir=folder,
        extra_env=variables,
    )
    text = Path(results).read_text()
    assert "<testcase" in text and "<failure" not in text and "<error" not in text, text


RATES = [*product(["4", "5", "16", "25/3"], [-0.02, 0.0, 0.02]), *product(["14/3"], [-0.01, 0.01])]
"""Cycles of a bit, and by how much the other UART is slower."""


@pytest.mark.parametrize(("divisor", "mismatch"), quick(RATES, ("5", 0.02), ("25/3", -0.02)))
def test_uart(divisor: str, mismatch: float, tmp_path: Path) -> None:
    variables = {"LINK_DIVISOR": divisor, "LINK_MISMATCH": str(mismatch)}
    run(uart(Fraction(divisor)), "uart_understands_another_uart", tmp_path, variables)


@pytest.mark.slow
def test_receiver(tmp_path: Path) -> None:
    run(to_verilog({"dut": FrameReceiver()}), "bodies_are_found_among_anything", tmp_path, {})


def test_sender(tmp_path: Path) -> None:
    run(to_verilog({"dut": FrameSender()}), "bodies_are_framed", tmp_path, {})


def test_sender_without_gaps(tmp_path: Path) -> None:
    run(to_verilog({"dut": FrameSender(8, gapless=True)}), "frames_have_no_gaps", tmp_path, {})


def test_a_divisor_that_is_too_small() -> None:
    with pytest.raises(ConfigurationError, match="must be at least 4, not 3"):
        check_divisor(3)
