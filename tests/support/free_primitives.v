// Primitives for proofs: their outputs are free. A harness assumes of a memory what it needs of the contract
// in docs/primitives.md, of the one word that it follows.

module rtlstm_memory #(
  parameter WIDTH = 1,
  parameter DEPTH = 1,
  parameter ABITS = 1,
  parameter GRANULES = 1,
  parameter OUTREG = 0,
  parameter STYLE = "auto"
) (
  input clk,
  input [ABITS-1:0] read_address,
  output [WIDTH-1:0] read_data,
  input [ABITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input [GRANULES-1:0] write_enable
);
  assign read_data = $anyseq;
endmodule

module rtlstm_multiplier #(
  parameter A_BITS = 2,
  parameter B_BITS = 2,
  parameter STAGES = 1,
  parameter KIND = "dsp"
) (
  input clk,
  input signed [A_BITS-1:0] a,
  input signed [B_BITS-1:0] b,
  output signed [A_BITS+B_BITS-1:0] product
);
  assign product = $anyseq;
endmodule

module rtlstm_multiplier_pair #(
  parameter A_BITS = 2,
  parameter B_BITS = 2,
  parameter STAGES = 1,
  parameter KIND = "dsp",
  parameter SHARED = 1
) (
  input clk,
  input signed [A_BITS-1:0] a0,
  input signed [B_BITS-1:0] b0,
  input signed [A_BITS-1:0] a1,
  input signed [B_BITS-1:0] b1,
  output signed [A_BITS+B_BITS-1:0] product0,
  output signed [A_BITS+B_BITS-1:0] product1,
  output carry1
);
  assign carry1 = $anyseq;
  assign product0 = $anyseq;
  assign product1 = $anyseq;
endmodule
