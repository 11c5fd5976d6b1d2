"""The Verilog of constant tables: one module for each, which all units that need it are instances of."""

from collections.abc import Iterator, Sequence

from rtlstm.spec.inventory import ActivationSpec, constant_tables
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import ceil_log2

_MODULE = """
// Constants of LUTs: {rows} words of {name}. A word comes {latency} after its row.
module {module} (
  input clk,
  input [{row}:0] row,
  output reg [{word}:0] word
);
  // The attributes are those of Vivado, of Quartus, and of Synplify. Yosys has its own, at the case.
  (* rom_style = "distributed", romstyle = "logic", syn_romstyle = "logic" *)
  reg [{word}:0] found;
{read}
  always @(*)
`ifdef YOSYS
    (* rom_style = "logic" *)
`endif
    case ({address})
{contents}
      default: found = 0;
    endcase
endmodule
"""
_DIRECTLY = "  always @(posedge clk) word <= found;"
_BY_REGISTER = """\
  reg [{row}:0] address;
  always @(posedge clk) begin
    address <= row;
    word <= found;
  end"""


def table_modules(manifest: Manifest) -> str:
    """Return the modules of a build's constant tables, with names like primitives'."""
    return "".join(map(_module, constant_tables(manifest)))


def _module(activation: ActivationSpec) -> str:
    memory, registered = activation.memory, activation.memory.output_register
    row = ceil_log2(memory.depth) - 1
    return _MODULE.format(
        name=memory.name,
        module=f"rtlstm_{activation.module}",
        rows=memory.depth,
        latency="2 cycles" if registered else "a cycle",
        row=row,
        word=memory.width - 1,
        address="address" if registered else "row",
        contents="\n".join(_cases(activation.table.words, row + 1, memory.width)),
        read=_BY_REGISTER.format(row=row) if registered else _DIRECTLY,
    )


def _cases(words: Sequence[int], row_bits: int, width: int) -> Iterator[str]:
    """Yield a line for each row: no tool takes one constant as long as a table."""
    for row, word in enumerate(words):
        yield f"      {row_bits}'d{row}: found = {width}'h{word:x};"
