"""The frame for place and route, checked in a simulator too."""

import subprocess
from pathlib import Path

import pytest

from rtlstm.fpga.netlist.harness import Port, black_box, harness, read_ports
from rtlstm.spec.errors import BuildError

OLD = """
module other(a, clk);
  input a;
  input clk;
endmodule
module top(clk, rst, x, y, z);
  function [1:0] pick;
    input [1:0] a;
    pick = a;
  endfunction
  input clk;
  wire clk;
  input rst;
  input [3:0] x;
  output [3:0] y;
  reg [3:0] y;
  output z;
  always @(posedge clk) y <= rst ? 0 : x;
  assign z = ^x;
endmodule
"""
NEW = (
    "module top(input clk, input rst, input wire signed [3:0] x, output reg [3:0] y, output z);\nendmodule\n"
)
PORTS = (
    Port("clk", "input", 1),
    Port("rst", "input", 1),
    Port("x", "input", 4),
    Port("y", "output", 4),
    Port("z", "output", 1),
)


@pytest.mark.parametrize("text", [OLD, NEW], ids=["declared in the body", "declared in the head"])
def test_ports(text: str):
    assert read_ports(text, "top") == PORTS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have a module top"),
        ("module top(a);\n  input a;\nendmodule\n", "no port clk"),
        ("module top(clk, a);\n  input clk;\nendmodule\n", "port a is not declared"),
    ],
)
def test_unreadable_ports(text: str, words: str):
    with pytest.raises(BuildError, match=words):
        read_ports(text, "top")


def test_text_of_several_cores():
    text = harness("top", PORTS, 3)
    assert [f"top core{number} (" in text for number in range(4)] == [True, True, True, False]
    assert ".x(port2_x)" in text and ".y(out2_y)" in text and "reg [14:0] folded" in text


def test_text():
    text = harness("top", PORTS)
    assert "{shift_rst, shift_x} <= {shift_rst, shift_x, pin_in};" in text
    assert "port_x <= shift_x;" in text and "folded <= {folded, pin_in} ^ {port_y, port_z};" in text
    assert ".x(port_x)" in text and ".y(out_y)" in text
    assert black_box("top", PORTS).startswith(
        "(* blackbox *)\nmodule top(input clk, input rst, input [3:0] x"
    )


@pytest.mark.rtl
@pytest.mark.parametrize(("cores", "prefixes"), [(1, ["port_"]), (2, ["port0_", "port1_"])])
def test_every_port_is_reached(tmp_path: Path, cores: int, prefixes: list[str]):
    """What is shifted in reaches each core, and each output bit alone reaches the pin."""
    names = ["core"] if cores == 1 else [f"core{number}" for number in range(cores)]
    word = "01101" if cores == 1 else "0110110010"
    inputs = ", ".join(f"frame.{name}.rst, frame.{name}.x" for name in names)
    outputs = [f"frame.{prefix}{bit}" for prefix in prefixes for bit in ("y[0]", "y[1]", "y[2]", "y[3]", "z")]
    force = "\n".join(
        f"    clear; force {bit} = 1; #1 clk = 1; #1 force {bit} = 0; clk = 0; "
        f'release {bit}; drain; if (seen != 1) $display("{bit} seen %0d", seen);'
        for bit in outputs
    )
    bench = f"""
module bench;
  reg clk = 0, pin_in = 0; wire pin_out; integer i, seen = 0;
  rtlstm_harness frame(clk, pin_in, pin_out);
  reg [{len(word) - 1}:0] word = {len(word)}'b{word};
  task clear; begin
    pin_in = 0;
    for (i = 0; i < 40; i = i + 1) begin #1 clk = 1; #1 clk = 0; end
    seen = 0;
  end endtask
  task drain;
    for (i = 0; i < 40; i = i + 1) begin #1 clk = 1; #1 clk = 0; if (pin_out === 1) seen = seen + 1; end
  endtask
  initial begin
    for (i = 0; i < {len(word)}; i = i + 1) begin
      pin_in = word[{len(word) - 1} - i];
      #1 clk = 1; #1 clk = 0;
    end
    #1 clk = 1; #1 clk = 0;
    if ({{{inputs}}} !== word) $display("wrong: %b", {{{inputs}}});
{force}
    $display("done");
  end
endmodule
"""
    (tmp_path / "all.v").write_text(OLD + harness("top", PORTS, cores) + bench)
    subprocess.run(["iverilog", "-g2005", "-s", "bench", "-o", "sim", "all.v"], cwd=tmp_path, check=True)
    said = subprocess.run(["vvp", "sim"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["done"]
