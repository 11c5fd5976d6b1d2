// What the families' sums of two products are compared with: multipliers, and an adder with a register. The
// contract is in docs/primitives.md.

module rtlstm_product_sum #(
  parameter A_BITS = 2,
  parameter B_BITS = 2,
  parameter STAGES = 1
) (
  input clk,
  input signed [A_BITS-1:0] a0,
  input signed [B_BITS-1:0] b0,
  input signed [A_BITS-1:0] a1,
  input signed [B_BITS-1:0] b1,
  output reg signed [A_BITS+B_BITS:0] sum
);
  wire signed [A_BITS+B_BITS-1:0] product0, product1;
  rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) first (clk, a0, b0, product0);
  rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) second (clk, a1, b1, product1);
  always @(posedge clk) sum <= product0 + product1;
endmodule

module rtlstm_product_sum_pair #(
  parameter A_BITS = 2,
  parameter B_BITS = 2,
  parameter STAGES = 1
) (
  input clk,
  input signed [A_BITS-1:0] a00,
  input signed [A_BITS-1:0] a01,
  input signed [A_BITS-1:0] a10,
  input signed [A_BITS-1:0] a11,
  input signed [B_BITS-1:0] b0,
  input signed [B_BITS-1:0] b1,
  output signed [A_BITS+B_BITS:0] sum0,
  output signed [A_BITS+B_BITS:0] sum1
);
  rtlstm_product_sum #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) lane0 (clk, a00, b0, a01, b1, sum0);
  rtlstm_product_sum #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) lane1 (clk, a10, b0, a11, b1, sum1);
endmodule
