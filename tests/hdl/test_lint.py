"""The generated Verilog passes Verilator's lint, all warnings on, and holds no word that turns one off."""

import subprocess
from itertools import product
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib.wiring import In, Out
from support.bus_builds import write_build, write_loadable
from support.quick import quick
from support.random_builds import TINY, make_case, random_case
from support.small_builds import network

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.component import Component
from rtlstm.hdl.emit.tidy import tidy_verilog
from rtlstm.hdl.emit.verilog import core_to_verilog, to_verilog
from rtlstm.sim.simulated_ports import SIMULATION
from rtlstm.spec.buses import BusName
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters
from rtlstm.tools.toolchain import verilator, verilator_environment

pytestmark = pytest.mark.rtl


def lint(verilog: Path, top: str) -> list[str]:
    """Verilator's warnings and errors. DECLFILENAME wants a file for each module; a build is one file."""
    command = [verilator().binary, "--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module", top, verilog]
    return warnings(command)


def compiled(verilog: Path, top: str) -> list[str]:
    """What Verilator says when it compiles: it then looks for loops, too. Hard cells are described."""
    command = [verilator().binary, "--cc", "-Wall", "-Wno-DECLFILENAME", "--top-module", top, verilog]
    command.append(f"-D{SIMULATION}")
    return warnings([*command, "--Mdir", verilog.parent / "compiled"])


def warnings(command: list[str | Path]) -> list[str]:
    done = subprocess.run(
        list(map(str, command)), env=verilator_environment(), capture_output=True, text=True, check=False
    )
    found = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("%")]
    assert bool(done.returncode) == bool(found)
    return found


def check(folder: Path, name: str, bus: BusName) -> None:
    verilog = folder / "rtl" / f"{name}.v"
    text = verilog.read_text()
    assert "lint_off" not in text and "verilator" not in text
    assert lint(verilog, name if bus == "none" else f"{name}_{bus}") == []


@pytest.mark.parametrize("bus", ["axi", "axilite", "wishbone"])
def test_wrapped_build_passes(bus: BusName, tmp_path: Path) -> None:
    write_build(tmp_path, bus)
    check(tmp_path, "dut", bus)


@pytest.mark.slow
@pytest.mark.parametrize("bus", ["axi", "axilite", "wishbone"])
def test_wrapped_loadable_build_passes(bus: BusName, tmp_path: Path) -> None:
    write_loadable(tmp_path, bus)
    check(tmp_path, "dut", bus)


def test_core_passes(tmp_path: Path) -> None:
    case = random_case(201, sizes=TINY)
    case.write(tmp_path)
    check(tmp_path, case.manifest.name, "none")


FAMILIES = ("ecp5", "generic", "ice40", "ultrascale", "xilinx")
"""Those with primitives of their own, and one with the portable ones."""
KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "logic": {"lut_macs": 2, "slope_multipliers": "lut"},
    "direct": {"tables": "direct"},
    "constant": {"tables": "direct", "table_memory": "rom"},
}


@pytest.mark.parametrize(("family", "kind"), quick(product(FAMILIES, KINDS), ("ice40", "logic")))
def test_cores_of_every_family_pass(family: str, kind: str, tmp_path: Path) -> None:
    """Their primitives, too: in their descriptions for simulation, which have no hard cells."""
    settings = QuantizationSettings(weight_bits=4, data_bits=8, gate_bits=8, cell_bits=12)
    if kind in ("direct", "constant"):
        settings = settings.replace(tables="direct")
    made = quantise(network(), settings)
    sizes: dict[str, object] = {"lanes": 8, "macs": 4, "gate_units": 2, "beat_out": 2}
    if kind == "logic" and family != "ecp5":
        sizes["weight_memory"] = "large"
    manifest = Manifest.of("dut", made, Parameters.for_family(family, **sizes, **KINDS[kind]))
    path = tmp_path / "dut.v"
    path.write_text(core_to_verilog(manifest))
    assert compiled(path, "dut") == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 41))
def test_random_builds_pass(seed: int, tmp_path: Path) -> None:
    bus: BusName = ("none", "axi", "axilite", "wishbone")[seed % 4]
    drawn = random_case(seed)
    case = make_case(seed, drawn.network, drawn.manifest.parameters.replace(bus=bus), steps=1)
    case.write(tmp_path)
    check(tmp_path, case.manifest.name, bus)


def test_lint_hears_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "dut.v"
    path.write_text("module dut(input [3:0] a, output [7:0] b);\n  assign b = a;\nendmodule\n")
    assert "WIDTHEXPAND" in lint(path, "dut")[0]


class Untidy(Component):
    """What Yosys writes in forms that Verilator warns about."""

    left: Signal
    right: Signal
    wide: Signal
    low: Signal
    less: Signal
    extended: Signal
    chosen: Signal

    def __init__(self) -> None:
        outputs = {"wide": 9, "low": 3, "less": 1, "extended": 8, "chosen": 4}
        super().__init__(
            {"left": In(4), "right": In(6)} | {name: Out(width) for name, width in outputs.items()}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total, kept = Signal(signed(8)), Signal(4, init=3)
        m.d.comb += [
            self.wide.eq(self.left + self.right),
            self.low.eq(self.right >> self.left),
            self.less.eq(self.left < 0),
            total.eq(self.right.as_signed() >> 2),
            self.extended.eq(total),
            self.chosen.eq(kept),
        ]
        with m.Switch(self.left[:2]):
            for value in range(4):
                with m.Case(value):
                    m.d.sync += kept.eq(self.right >> value)
        return m


PARTS = {
    "tidy._even": {"WIDTHEXPAND", "WIDTHTRUNC"},
    "tidy._settled": {"UNSIGNED"},
    "tidy._part_wires": {"UNOPTFLAT"},
    "tidy._name_unused": {"UNUSEDSIGNAL"},
    "verilog.tidy_verilog": {"PROCASSINIT", "CASEOVERLAP"},
}
"""Parts of the tidying, and warnings that a user would have without them."""


def test_untidy_component_passes(tmp_path: Path) -> None:
    path = tmp_path / "dut.v"
    path.write_text(to_verilog({"dut": Untidy()}))
    assert lint(path, "dut") == compiled(path, "dut") == []


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_the_tidying_is_idle(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = (lambda text: text) if part == "verilog.tidy_verilog" else (lambda *_: None)
    monkeypatch.setattr(f"rtlstm.hdl.emit.{part}", idle)
    path = tmp_path / "dut.v"
    path.write_text(to_verilog({"dut": Untidy()}))
    found = {line.removeprefix("%Warning-").partition(":")[0] for line in compiled(path, "dut")}
    assert found >= PARTS[part]


def test_verilog_is_made_tidy() -> None:
    given = """
  reg [3:0] \\a.b  = 4'h3;
  reg c = 1'h0;
    casez (s) // synopsys parallel_case
      3'b??1:
      3'b1??:
"""
    wanted = """
  reg [3:0] \\a.b ;
  initial \\a.b  = 4'h3;
  reg c;
  initial c = 1'h0;
    case (1'b1)
      s[0]:
      s[2]:
"""
    assert tidy_verilog(given) == wanted
