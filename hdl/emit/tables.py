"""The Verilog of constant tables: one module for each, which all units that need it are instances of."""

from collections.abc import Iterable

from rtlstm.spec.inventory import ActivationSpec
from rtlstm.spec.parameters import ceil_log2

__all__ = ["table_modules"]

_MODULE = """
// A constant table of {rows} words, made of LUTs. A word comes {latency} after its row.
module {name} (
  input clk,
  input [{row}:0] row,
  output reg [{word}:0] word
);
  localparam [{bits}:0] WORDS = {size}'h{contents:x};
  // Yosys takes distributed for memory with a write port. The attributes are its own; Vivado's, Quartus' and
  // Synplify's.
`ifdef YOSYS
  (* rom_style = "logic" *)
`else
  (* rom_style = "distributed", romstyle = "logic", syn_romstyle = "logic" *)
`endif
  reg [{word}:0] rows [0:{last}];
  integer i;
  initial for (i = 0; i < {rows}; i = i + 1) rows[i] = WORDS[i*{width} +: {width}];
{read}
endmodule
"""
_DIRECTLY = "  always @(posedge clk) word <= rows[row];"
_BY_REGISTER = """\
  reg [{row}:0] address;
  always @(posedge clk) begin
    address <= row;
    word <= rows[address];
  end"""


def table_modules(activations: Iterable[ActivationSpec]) -> str:
    """Return the modules of those tables that are constants, with names like primitives'."""
    return "".join(_module(activation) for activation in activations if activation.constant)


def _module(activation: ActivationSpec) -> str:
    memory, words = activation.memory, activation.table.words
    row = ceil_log2(memory.depth) - 1
    read = _BY_REGISTER.format(row=row) if memory.output_register else _DIRECTLY
    return _MODULE.format(
        name=f"rtlstm_{activation.module}",
        rows=memory.depth,
        latency="2 cycles" if memory.output_register else "a cycle",
        row=row,
        word=memory.width - 1,
        bits=memory.depth * memory.width - 1,
        size=memory.depth * memory.width,
        contents=sum(word << index * memory.width for index, word in enumerate(words)),
        last=memory.depth - 1,
        width=memory.width,
        read=read,
    )
