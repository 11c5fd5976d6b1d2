// PLLs for the simulated board. Their clock comes from the simulation's harness, which reads the ratio
// that the cell's parameters make of the clock at its input.

// Locks after 16 edges of the source. The harness moves the oscillator `multiply` cycles for every
// `divide` cycles of the source.
module rtlstm_pll_model #(
  parameter [31:0] MULTIPLY = 1,
  parameter [31:0] DIVIDE = 1
) (
  input source,
  input reset,
  output clock,
  output lock
);
  reg oscillator /* verilator public_flat_rw */;
  wire [31:0] multiply /* verilator public_flat_rd */;
  wire [31:0] divide /* verilator public_flat_rd */;
  reg [4:0] edges = 0;
  assign multiply = MULTIPLY;
  assign divide = DIVIDE;
  assign clock = oscillator;
  assign lock = edges[4];
  always @(posedge source) edges <= reset ? 5'd0 : edges + {4'd0, !edges[4]};
endmodule
