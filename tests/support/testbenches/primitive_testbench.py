"""One testbench for many primitives at once: random stimulus on reference and device, all outputs compared.

The device is the same set of primitives from another file, or its netlist after synthesis.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rtlstm.hdl.emit.verilog import primitives
from rtlstm.tools.toolchain import icarus, run_tool, verilator, verilator_environment
from support.paths import TESTS


@dataclass(frozen=True)
class Memory:
    width: int
    depth: int
    granules: int = 1
    outreg: int = 0
    style: str = "auto"
    single: bool = False
    """Reads and writes never come in the same cycle (memories with one port)."""

    @property
    def address_bits(self) -> int:
        return max(1, (self.depth - 1).bit_length())


@dataclass(frozen=True)
class Multiplier:
    a: int
    b: int
    stages: int
    kind: str = "dsp"


@dataclass(frozen=True)
class Pair:
    a: int
    b: int
    stages: int
    kind: str = "dsp"
    shared: int = 1


@dataclass(frozen=True)
class Sum:
    """The sum of two products, or two such sums with the same second factors."""

    a: int
    b: int
    stages: int
    lanes: int = 1


@dataclass(frozen=True)
class MemoryPair:
    width: int
    depth: int
    outreg: int = 0

    @property
    def address_bits(self) -> int:
        return max(1, (self.depth - 1).bit_length())


Primitive = Memory | MemoryPair | Multiplier | Pair | Sum


def ports(index: int, item: Primitive) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return names and widths of the inputs and outputs."""
    name = f"p{index}"
    if isinstance(item, Memory):
        inputs = {"ra": item.address_bits, "wa": item.address_bits, "wd": item.width, "we": item.granules}
        outputs = {"rd": item.width}
    elif isinstance(item, MemoryPair):
        inputs = {"a0": item.address_bits, "a1": item.address_bits, "wd": item.width, "we": 1}
        outputs = {"rd0": item.width, "rd1": item.width}
    elif isinstance(item, Multiplier):
        inputs, outputs = {"a": item.a, "b": item.b}, {"y": item.a + item.b}
    elif isinstance(item, Sum):
        weights = ("a0", "a1") if item.lanes == 1 else ("a00", "a01", "a10", "a11")
        inputs = dict.fromkeys(weights, item.a) | {"b0": item.b, "b1": item.b}
        outputs = {f"y{lane}": item.a + item.b + 1 for lane in range(item.lanes)}
    else:
        inputs = {"a0": item.a, "b0": item.b, "a1": item.a, "b1": item.b}
        outputs = {"y0": item.a + item.b, "y1": item.a + item.b, "c1": 1}
    return [(f"{name}_{key}", bits) for key, bits in inputs.items()], [
        (f"{name}_{key}", bits) for key, bits in outputs.items()
    ]


def instance(index: int, item: Primitive, prefix: str) -> str:
    name = f"p{index}"
    if isinstance(item, Memory):
        module, arguments = "memory", ("ra", "rd", "wa", "wd", "we")
        parameters = (
            f".WIDTH({item.width}), .DEPTH({item.depth}), .ABITS({item.address_bits}), "
            f'.GRANULES({item.granules}), .OUTREG({item.outreg}), .STYLE("{item.style}")'
        )
    elif isinstance(item, MemoryPair):
        module, arguments = "memory_pair", ("a0", "rd0", "a1", "rd1", "wd", "we")
        parameters = (
            f".WIDTH({item.width}), .DEPTH({item.depth}), .ABITS({item.address_bits}), .OUTREG({item.outreg})"
        )
    elif isinstance(item, Sum):
        module, arguments = "product_sum", ("a0", "b0", "a1", "b1", "y0")
        if item.lanes == 2:
            module, arguments = f"{module}_pair", ("a00", "a01", "a10", "a11", "b0", "b1", "y0", "y1")
        parameters = f".A_BITS({item.a}), .B_BITS({item.b}), .STAGES({item.stages})"
    else:
        parameters = f'.A_BITS({item.a}), .B_BITS({item.b}), .STAGES({item.stages}), .KIND("{item.kind}")'
        if isinstance(item, Multiplier):
            module, arguments = "multiplier", ("a", "b", "y")
        else:
            module, arguments = "multiplier_pair", ("a0", "b0", "a1", "b1", "y0", "y1", "c1")
            parameters += f", .SHARED({item.shared})"
    connected = ", ".join(["clk", *(f"{name}_{key}" for key in arguments)])
    return f"  {prefix}{module} #({parameters}) {name} ({connected});\n"


def duts(name: str, items: Sequence[Primitive], prefix: str = "rtlstm_") -> str:
    """Return a module with one instance of each primitive."""
    declared, body = ["input clk"], ""
    for index, item in enumerate(items):
        inputs, outputs = ports(index, item)
        declared += [f"input [{bits - 1}:0] {port}" for port, bits in inputs]
        declared += [f"output [{bits - 1}:0] {port}" for port, bits in outputs]
        body += instance(index, item, prefix)
    return f"module {name} (\n  " + ",\n  ".join(declared) + f"\n);\n{body}endmodule\n"


CLOCK = "module top;\n  reg clk = 1;\n  always #5 clk = ~clk;\n  bench bench (.clk(clk));\nendmodule\n"

MAIN = """
#include "Vbench.h"
int main(int argc, char** argv) {
  VerilatedContext context;
  context.commandArgs(argc, argv);
  Vbench bench{&context};
  for (bench.clk = 1; !context.gotFinish(); bench.clk = !bench.clk) bench.eval();
}
"""


def _random(bits: int) -> str:
    words = ", ".join(["$random"] * -(-bits // 32))
    return f"{{{words}}}"


def bench(items: Sequence[Primitive], cycles: int) -> str:
    """Return the testbench: modules ``reference`` and ``device`` in, "passed" or differences out."""
    head, drive, check = "", "", ""
    both = [ports(index, item) for index, item in enumerate(items)]
    for index, item in enumerate(items):
        inputs, outputs = both[index]
        name = f"p{index}"
        for port, bits in inputs:
            head += f"  reg [{bits - 1}:0] {port};\n"
        for port, bits in outputs:
            head += f"  wire [{bits - 1}:0] {port}_r, {port}_d;\n"
        if isinstance(item, Memory):
            late = item.outreg
            head += f"  reg {name}_known [0:{item.depth - 1}];\n  reg {name}_ok0 = 0, {name}_ok1 = 0;\n"
            head += f"  initial for (i = 0; i < {item.depth}; i = i + 1) {name}_known[i] = 0;\n"
            check += f"    if ({name}_ok{late} === 1'b1) begin\n      compared = compared + 1;\n"
            check += f"      if ({name}_rd_d !== {name}_rd_r) different({index});\n    end\n"
            # What is read next edge is known if it was written before and is not written now.
            drive += f"    {name}_ok1 = {name}_ok0;\n"
            # 16 addresses, far from each other.
            for port in ("ra", "wa"):
                drive += f"    {name}_{port} = ($random & 15) * 7919 % {item.depth};\n"
            drive += f"    {name}_wd = {_random(item.width)};\n    {name}_we = {_random(item.granules)};\n"
            whole = f"{{{item.granules}{{1'b1}}}}"
            drive += f"    if (!{name}_known[{name}_wa] && {name}_we != 0) {name}_we = {whole};\n"
            if item.single:
                drive += f"    if ($random & 1) {name}_we = 0;\n"
            clash = f"{name}_we != 0" if item.single else f"{name}_we != 0 && {name}_wa == {name}_ra"
            drive += f"    {name}_ok0 = {name}_known[{name}_ra] && !({clash});\n"
            drive += f"    if ({name}_we != 0) {name}_known[{name}_wa] = 1;\n"
        elif isinstance(item, MemoryPair):
            head += f"  reg {name}_known [0:{item.depth - 1}];\n  reg [3:0] {name}_ok = 0;\n"
            head += f"  initial for (i = 0; i < {item.depth}; i = i + 1) {name}_known[i] = 0;\n"
            for port in (0, 1):
                known = f"{name}_ok[{2 * item.outreg + port}]"
                check += f"    if ({known}) begin\n      compared = compared + 1;\n"
                check += f"      if ({name}_rd{port}_d !== {name}_rd{port}_r) different({index});\n    end\n"
                drive += f"    {name}_a{port} = ($random & 15) * 7919 % {item.depth};\n"
            drive += f"    {name}_wd = {_random(item.width)};\n    {name}_we = $random;\n"
            # A write's cycle reads nothing.
            known = f"{name}_known[{name}_a1], {name}_known[{name}_a0]"
            drive += f"    {name}_ok = {{{name}_ok[1:0], {name}_we ? 2'b00 : {{{known}}}}};\n"
            drive += f"    if ({name}_we) {name}_known[{name}_a0] = 1;\n"
        else:
            late = item.stages + isinstance(item, Sum)
            check += f"    if (cycle > {late}) begin\n      compared = compared + 1;\n"
            compared = [port for port, _ in outputs]
            if isinstance(item, Pair):
                # A family may leave a carry of the second product to the adder behind it.
                compared = [f"{name}_y0", f"{name}_sum"]
                for side in ("r", "d"):
                    head += f"  wire [{item.a + item.b - 1}:0] {name}_sum_{side} = "
                    head += f"{name}_y1_{side} + {name}_c1_{side};\n"
            for port in compared:
                check += f"      if ({port}_d !== {port}_r) different({index});\n"
            check += "    end\n"
            for port, bits in inputs:
                # Extremes often: all products of the most negative numbers.
                extreme = f"{{1'b1, {bits - 1}'d0}}" if bits > 1 else "1'b1"
                drive += f"    {port} = $random & 3 ? {_random(bits)} : {extreme};\n"
            if isinstance(item, Pair) and item.shared:
                drive += f"    {name}_b1 = {name}_b0;\n"
    given = [port for inputs, _ in both for port, _ in inputs]
    taken = [port for _, outputs in both for port, _ in outputs]
    for top, suffix in (("reference", "_r"), ("device", "_d")):
        connected = [f".{port}({port})" for port in given] + [f".{port}({port}{suffix})" for port in taken]
        head += f"  {top} {top} (\n    .clk(clk),\n    " + ",\n    ".join(connected) + "\n  );\n"
    return f"""
module bench (input clk);
  integer cycle = 0, compared = 0, i, wrong = 0;
{head}
  task different(input integer index);
    begin
      if (wrong < 20) $display("cycle %0d: primitive %0d differs", cycle, index);
      wrong = wrong + 1;
    end
  endtask
  always @(negedge clk) begin
{check}
{drive}
    cycle = cycle + 1;
    if (cycle > {cycles}) begin
      if (wrong == 0) $display("passed %0d", compared); else $display("%0d differences", wrong);
      $finish;
    end
  end
endmodule
"""


def reference(items: Sequence[Primitive]) -> str:
    """Return the portable primitives and their set, under names of their own."""
    more = ((TESTS / "support" / name).read_text() for name in ("memory_pair.v", "product_sums.v"))
    texts = [primitives("generic", "portable"), *(text.replace("rtlstm_", "portable_") for text in more)]
    return "".join(texts) + duts("reference", items, "portable_")


def run(texts: Iterable[str], simulator: str, folder: Path, defines: Sequence[str] = ()) -> str:
    """Compile and run the testbench; return what it printed."""
    source = folder / "all.v"
    flags = [f"-D{name}" for name in defines]
    if simulator == "icarus":
        tool = icarus()
        source.write_text("\n".join([*texts, CLOCK]))
        run_tool([tool.iverilog, "-g2005", *flags, "-s", "top", "-o", folder / "bench", source], "icarus")
        return run_tool([tool.vvp, "-n", folder / "bench"], "vvp")
    source.write_text("\n".join(texts))
    (folder / "main.cpp").write_text(MAIN)
    command = [verilator().binary, "--cc", "--exe", "--build"]
    command += ["--x-assign", "unique", "--x-initial", "unique"]
    command += ["-Wno-fatal", "-Wno-lint", "-Wno-style", *flags, "--top-module", "bench", "-CFLAGS", "-O1"]
    command += ["--Mdir", folder / "objects", source, folder / "main.cpp"]
    run_tool(command, "verilator", folder, verilator_environment())
    return run_tool([folder / "objects" / "Vbench", "+verilator+rand+reset+2"], "bench", folder)
