"""The activation pipeline equals its table on every input, three cycles later."""

from pathlib import Path

import numpy as np
import pytest
from support.benches import run_bench

from rtlstm.hdl.core.unit import ActivationUnit
from rtlstm.hdl.emit.verilog import to_verilog
from rtlstm.spec.activations.interpolated import design_table
from rtlstm.spec.fixed import Format
from rtlstm.spec.inventory import activation_spec

pytestmark = pytest.mark.rtl

BENCH = """
module bench;
  reg clk = 0, rst = 1, write = 0, negative;
  reg [{magnitude_bits}-1:0] magnitude;
  reg [{row_bits}-1:0] write_row;
  reg [{width}-1:0] write_data, rows [0:{rows}-1];
  wire [{value_bits}-1:0] value;
  wire [{width}-1:0] entry;
  integer i;
  dut dut (.clk(clk), .rst(rst), .write(write), .write_row(write_row), .write_data(write_data),
           .negative(negative), .magnitude(magnitude), .value(value), .entry(entry));
  task tick; begin #1 clk = 1; #1 clk = 0; end endtask
  initial begin
    $readmemh("table.hex", rows);
    tick; rst = 0; write = 1;
    for (i = 0; i < {rows}; i = i + 1) begin write_row = i; write_data = rows[i]; tick; end
    write = 0;
    for (i = 0; i < {inputs} + 3; i = i + 1) begin
      {{negative, magnitude}} = i;
      tick;
      if (i >= 2 && i < {inputs} + 2) $display("%0d", value);
    end
    $finish;
  end
endmodule
"""


@pytest.mark.parametrize("bits", [6, 12, 16])
@pytest.mark.parametrize("function", ["sigmoid", "tanh"])
def test_every_input(function: str, bits: int, tmp_path: Path) -> None:
    reads = Format(bits=bits + 2, fraction=bits - 3)
    table = design_table(function, reads, Format(bits=bits, fraction=bits - 1))
    unit = ActivationUnit(activation_spec("tried", table))
    width = table.base_bits + table.slope_bits
    rows = [
        (slope % (1 << table.slope_bits)) << table.base_bits | base
        for base, slope in zip(table.base, table.slope, strict=True)
    ]
    (tmp_path / "table.hex").write_text("\n".join(f"{row:x}" for row in rows))
    bench = BENCH.format(
        magnitude_bits=table.magnitude_bits,
        row_bits=max(1, (table.rows - 1).bit_length()),
        width=width,
        rows=table.rows,
        value_bits=bits - 1,
        inputs=2 << table.magnitude_bits,
    )
    printed = run_bench(tmp_path, bench, to_verilog({"dut": unit}))
    got = np.array(printed.split(), dtype=np.int64)
    magnitude = np.arange(1 << table.magnitude_bits)
    wanted = [table.magnitude(np.full(magnitude.shape, sign), magnitude) for sign in (False, True)]
    np.testing.assert_array_equal(got, np.concatenate(wanted))
