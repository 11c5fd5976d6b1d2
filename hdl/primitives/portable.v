
// Multipliers in the forms that synthesis tools infer hard blocks from: for every family without a
// file of its own. The families' files have the same modules with the same ports, which do the same
// in every cycle. The contract is in docs/primitives.md.

// A signed product, STAGES (1 to 3) cycles after its operands; one per cycle, no reset. KIND: "dsp"
// for a hard multiplier with its own registers, "lut" for logic.
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
  wire signed [A_BITS-1:0] a_in;
  wire signed [B_BITS-1:0] b_in;
  generate
    if (STAGES > 1) begin : operands
      reg signed [A_BITS-1:0] a_q;
      reg signed [B_BITS-1:0] b_q;
      always @(posedge clk) begin
        a_q <= a;
        b_q <= b;
      end
      assign a_in = a_q;
      assign b_in = b_q;
    end else begin : operands
      assign a_in = a;
      assign b_in = b;
    end
    if (KIND == "lut") begin : kind
      (* use_dsp = "no", multstyle = "logic", syn_multstyle = "logic" *)
      reg signed [A_BITS+B_BITS-1:0] result;
      always @(posedge clk) result <= a_in * b_in;
    end else begin : kind
      (* use_dsp = "yes", multstyle = "dsp" *)
      reg signed [A_BITS+B_BITS-1:0] result;
      always @(posedge clk) result <= a_in * b_in;
    end
    if (STAGES > 2) begin : last
      reg signed [A_BITS+B_BITS-1:0] later;
      always @(posedge clk) later <= kind.result;
      assign product = later;
    end else begin : last
      assign product = kind.result;
    end
  endgenerate
endmodule

// Two signed products, STAGES cycles after their operands: product0, and product1 + carry1, whose carry is
// left to the adder behind it. SHARED = 1 promises that b0 and b1 are the same; some families then take less
// hardware. The carry is 0 otherwise, and in families that need none.
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
  assign carry1 = 1'b0;
  localparam unused = SHARED;
  rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) first (
    .clk(clk), .a(a0), .b(b0), .product(product0)
  );
  rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) second (
    .clk(clk), .a(a1), .b(b1), .product(product1)
  );
endmodule
