
// Multipliers for AMD Xilinx: DSP blocks with their own registers. Same modules, ports and cycles as
// portable.v, where the contract stands. A file before this one has the block: rtlstm_dsp48.
//
// With RTLSTM_SIMULATION defined there are no hard cells: simulations are several times faster and
// need no models of them. With RTLSTM_NO_MULTIPLIERS defined every multiplier is made of logic.

// f(a, b) + (c & d) + (carry_a & carry_b): see rows.v.
module rtlstm_sum #(
  parameter BITS = 2,
  parameter [3:0] FUNCTION = 4'b1010
) (
  input [BITS-1:0] a,
  input [BITS-1:0] b,
  input [BITS-1:0] c,
  input [BITS-1:0] d,
  input carry_a,
  input carry_b,
  output [BITS-1:0] sum
);
  wire [BITS-1:0] first = FUNCTION == 4'b1010 ? a : FUNCTION == 4'b1000 ? a & b : ~(a & b);
  assign sum = first + (c & d) + (carry_a & carry_b);
endmodule

// One product in one block: a of up to RTLSTM_FACTOR bits, b of up to 18. Narrow operands go to the upper
// bits, so that no sign has to be wired to many pins.
module rtlstm_xilinx_multiplier #(
  parameter A_BITS = 18,
  parameter B_BITS = 18,
  parameter STAGES = 1
) (
  input clk,
  input [A_BITS-1:0] a,
  input [B_BITS-1:0] b,
  output [A_BITS+B_BITS-1:0] product
);
  localparam TOP = `RTLSTM_FACTOR + 18;
  wire [A_BITS+`RTLSTM_FACTOR-1:0] a_wide = {a, {`RTLSTM_FACTOR{1'b0}}};
  wire [B_BITS+17:0] b_wide = {b, 18'd0};
  wire [47:0] p;
  assign product = p[TOP-1:TOP-A_BITS-B_BITS];
  rtlstm_dsp48 #(.INPUTS(STAGES > 1 ? 1 : 0), .PIPELINE(STAGES > 2 ? 1 : 0)) block (
    .clk(clk),
    .a(a_wide[A_BITS +: `RTLSTM_FACTOR]),
    .d({`RTLSTM_FACTOR{1'b0}}),
    .b(b_wide[B_BITS +: 18]),
    .c(48'd0),
    .p(p)
  );
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
`ifdef RTLSTM_NO_MULTIPLIERS
  localparam LOGIC = 1;
`else
  localparam LOGIC = KIND == "lut";
`endif
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0;
`else
  localparam HARD = 1;
`endif
  generate
    if (HARD && LOGIC && A_BITS >= B_BITS) begin : tables
      rtlstm_logic_multiplier #(.X_BITS(A_BITS), .Y_BITS(B_BITS), .STAGES(STAGES)) multiplier (
        .clk(clk), .x(a), .y(b), .product(product)
      );
    end else if (HARD && LOGIC) begin : tables
      rtlstm_logic_multiplier #(.X_BITS(B_BITS), .Y_BITS(A_BITS), .STAGES(STAGES)) multiplier (
        .clk(clk), .x(b), .y(a), .product(product)
      );
    end else if (HARD && A_BITS >= B_BITS && A_BITS <= `RTLSTM_FACTOR && B_BITS <= 18) begin : block
      rtlstm_xilinx_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) multiplier (
        .clk(clk), .a(a), .b(b), .product(product)
      );
    end else if (HARD && B_BITS <= `RTLSTM_FACTOR && A_BITS <= 18) begin : block
      rtlstm_xilinx_multiplier #(.A_BITS(B_BITS), .B_BITS(A_BITS), .STAGES(STAGES)) multiplier (
        .clk(clk), .a(b), .b(a), .product(product)
      );
    end else begin : inferred
      // Wider operands take several blocks, which synthesis composes.
      wire signed [A_BITS-1:0] a_in;
      wire signed [B_BITS-1:0] b_in;
      (* use_dsp = "yes" *)
      reg signed [A_BITS+B_BITS-1:0] result;
      reg signed [A_BITS+B_BITS-1:0] later;
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
      always @(posedge clk) begin
        result <= a_in * b_in;
        later <= result;
      end
      assign product = STAGES > 2 ? later : result;
    end
  endgenerate
endmodule

// Two products with the same b in one block, ((a1 << K) + a0) b where K = A_BITS + B_BITS, if the sum fits:
// 2 A_BITS + B_BITS + 1 <= RTLSTM_FACTOR. The pre-adder takes the borrow of a0 out of a1. The lower product
// would borrow from the upper one if it is negative; half of its range is added to it, which makes it
// positive, and turns over its sign bit alone. So nothing is left to logic but that one bit.
module rtlstm_xilinx_pair #(
  parameter A_BITS = 8,
  parameter B_BITS = 8,
  parameter STAGES = 3
) (
  input clk,
  input [A_BITS-1:0] a0,
  input [A_BITS-1:0] a1,
  input [B_BITS-1:0] b,
  output [A_BITS+B_BITS-1:0] product0,
  output [A_BITS+B_BITS-1:0] product1
);
  localparam BITS = A_BITS + B_BITS;
  // To the upper bits, as for one product: LOW and SHIFT bits below the factors and the products are 0.
  localparam LOW = `RTLSTM_FACTOR - BITS - A_BITS - 1;
  localparam SHIFT = LOW + 18 - B_BITS;
  wire [`RTLSTM_FACTOR-1:0] upper = {a1[A_BITS-1], a1, {BITS+LOW{1'b0}}};
  wire [`RTLSTM_FACTOR+LOW-1:0] lower = {{`RTLSTM_FACTOR-A_BITS{a0[A_BITS-1]}}, a0, {LOW{1'b0}}};
  wire [B_BITS+17:0] b_wide = {b, 18'd0};
  wire [47:0] p;
  rtlstm_dsp48 #(.ADDS(1), .INPUTS(STAGES > 1 ? 1 : 0), .PIPELINE(STAGES > 2 ? 1 : 0)) block (
    .clk(clk),
    .a(upper),
    .d(lower[`RTLSTM_FACTOR-1:0]),
    .b(b_wide[B_BITS +: 18]),
    .c(48'd1 << (SHIFT + BITS - 1)),
    .p(p)
  );
  assign product0 = {~p[SHIFT+BITS-1], p[SHIFT +: BITS-1]};
  assign product1 = p[SHIFT+BITS +: BITS];
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
  assign carry1 = 1'b0;
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0, unused = SHARED;
`elsif RTLSTM_NO_MULTIPLIERS
  localparam HARD = 0;
`else
  localparam HARD = KIND == "dsp" && SHARED && 2 * A_BITS + B_BITS + 1 <= `RTLSTM_FACTOR;
`endif
  generate
    if (HARD) begin : one
      rtlstm_xilinx_pair #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) pair (
        .clk(clk), .a0(a0), .a1(a1), .b(b0), .product0(product0), .product1(product1)
      );
    end else begin : two
      rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) first (
        .clk(clk), .a(a0), .b(b0), .product(product0)
      );
      rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) second (
        .clk(clk), .a(a1), .b(b1), .product(product1)
      );
    end
  endgenerate
endmodule
`undef RTLSTM_FACTOR
