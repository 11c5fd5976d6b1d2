
// Multipliers for AMD Xilinx: DSP blocks with their own registers. Same modules, ports and cycles as
// portable.v, where the contract stands, and sums of two products, whose contract is in docs/primitives.md. A file before this one has the block: rtlstm_dsp48.
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
// bits, so that no sign has to be wired to many pins. If CHAINED is set, it has one more register before the
// multiplier, and the sum of another block's product is added; the upper bit is only for such a sum.
module rtlstm_xilinx_multiplier #(
  parameter A_BITS = 18,
  parameter B_BITS = 18,
  parameter STAGES = 1,
  parameter CHAINED = 0
) (
  input clk,
  input [A_BITS-1:0] a,
  input [B_BITS-1:0] b,
  input [47:0] pcin,
  output [A_BITS+B_BITS:0] product,
  output [47:0] pcout
);
  localparam TOP = `RTLSTM_FACTOR + 18;
  wire [A_BITS+`RTLSTM_FACTOR-1:0] a_wide = {a, {`RTLSTM_FACTOR{1'b0}}};
  wire [B_BITS+17:0] b_wide = {b, 18'd0};
  wire [47:0] p;
  assign product = p[TOP:TOP-A_BITS-B_BITS];
  rtlstm_dsp48 #(
    .CHAINED(CHAINED), .INPUTS((STAGES > 1 ? 1 : 0) + CHAINED), .PIPELINE(STAGES > 2 ? 1 : 0)
  ) block (
    .clk(clk),
    .a(a_wide[A_BITS +: `RTLSTM_FACTOR]),
    .d({`RTLSTM_FACTOR{1'b0}}),
    .b(b_wide[B_BITS +: 18]),
    .c(48'd0),
    .pcin(pcin),
    .p(p),
    .pcout(pcout)
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
  wire unused_top;
  wire [47:0] unused_chain;
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
        .clk(clk), .a(a), .b(b), .pcin(48'd0), .product({unused_top, product}), .pcout(unused_chain)
      );
    end else if (HARD && B_BITS <= `RTLSTM_FACTOR && A_BITS <= 18) begin : block
      rtlstm_xilinx_multiplier #(.A_BITS(B_BITS), .B_BITS(A_BITS), .STAGES(STAGES)) multiplier (
        .clk(clk), .a(b), .b(a), .pcin(48'd0), .product({unused_top, product}), .pcout(unused_chain)
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

// Two products with the same b in one block, ((a1 << FIELD) + a0) b, if the sum fits: FIELD + A_BITS + 1 <=
// RTLSTM_FACTOR. The pre-adder takes the borrow of a0 out of a1. The lower product would borrow from the upper
// one if it is negative; half of its range is added to it, which makes it positive, and turns over its sign bit
// alone. So nothing is left to logic but that one bit. FIELD is at least A_BITS + B_BITS, and a bit more for sums:
// if CHAINED is set, the block has one more register before its multiplier, and another block's products are added,
// with their half of the range.
module rtlstm_xilinx_pair #(
  parameter A_BITS = 8,
  parameter B_BITS = 8,
  parameter FIELD = 16,
  parameter STAGES = 3,
  parameter CHAINED = 0
) (
  input clk,
  input [A_BITS-1:0] a0,
  input [A_BITS-1:0] a1,
  input [B_BITS-1:0] b,
  input [47:0] pcin,
  output [FIELD-1:0] product0,
  output [FIELD-1:0] product1,
  output [47:0] pcout
);
  // To the upper bits, as for one product: LOW and SHIFT bits below the factors and the products are 0.
  localparam LOW = `RTLSTM_FACTOR - FIELD - A_BITS - 1;
  localparam SHIFT = LOW + 18 - B_BITS;
  wire [`RTLSTM_FACTOR-1:0] upper = {a1[A_BITS-1], a1, {FIELD+LOW{1'b0}}};
  wire [`RTLSTM_FACTOR+LOW-1:0] lower = {{`RTLSTM_FACTOR-A_BITS{a0[A_BITS-1]}}, a0, {LOW{1'b0}}};
  wire [B_BITS+17:0] b_wide = {b, 18'd0};
  wire [47:0] p;
  rtlstm_dsp48 #(
    .ADDS(1), .CHAINED(CHAINED), .INPUTS((STAGES > 1 ? 1 : 0) + CHAINED), .PIPELINE(STAGES > 2 ? 1 : 0)
  ) block (
    .clk(clk),
    .a(upper),
    .d(lower[`RTLSTM_FACTOR-1:0]),
    .b(b_wide[B_BITS +: 18]),
    .c(48'd1 << (SHIFT + FIELD - 1)),
    .pcin(pcin),
    .p(p),
    .pcout(pcout)
  );
  assign product0 = {~p[SHIFT+FIELD-1], p[SHIFT +: FIELD-1]};
  assign product1 = p[SHIFT+FIELD +: FIELD];
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
  wire [47:0] unused_chain;
  generate
    if (HARD) begin : one
      rtlstm_xilinx_pair #(.A_BITS(A_BITS), .B_BITS(B_BITS), .FIELD(A_BITS + B_BITS), .STAGES(STAGES)) pair (
        .clk(clk), .a0(a0), .a1(a1), .b(b0), .pcin(48'd0), .product0(product0), .product1(product1), .pcout(unused_chain)
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

// a0 b0 + a1 b1, STAGES + 1 cycles after the operands: two blocks in a chain, of which the second adds what the
// first gives, and has its operands a cycle later in registers of its own.
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
  output signed [A_BITS+B_BITS:0] sum
);
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0;
`elsif RTLSTM_NO_MULTIPLIERS
  localparam HARD = 0;
`else
  localparam HARD = A_BITS <= `RTLSTM_FACTOR && B_BITS <= 18;
`endif
  generate
    if (HARD) begin : chain
      wire [47:0] between, unused_chain;
      wire [A_BITS+B_BITS:0] unused_product;
      rtlstm_xilinx_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) first (
        .clk(clk), .a(a0), .b(b0), .pcin(48'd0), .product(unused_product), .pcout(between)
      );
      rtlstm_xilinx_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .CHAINED(1)) second (
        .clk(clk), .a(a1), .b(b1), .pcin(between), .product(sum), .pcout(unused_chain)
      );
    end else begin : adder
      wire signed [A_BITS+B_BITS-1:0] product0, product1;
      rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) first (
        .clk(clk), .a(a0), .b(b0), .product(product0)
      );
      rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) second (
        .clk(clk), .a(a1), .b(b1), .product(product1)
      );
      reg signed [A_BITS+B_BITS:0] total;
      always @(posedge clk) total <= product0 + product1;
      assign sum = total;
    end
  endgenerate
endmodule

// Two such sums whose factors b are the same, of two lanes: sum0 = a00 b0 + a01 b1, sum1 = a10 b0 + a11 b1. Each
// block holds a product of both, if there is room for the sum's bit between them.
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
  localparam FIELD = A_BITS + B_BITS + 1;
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0;
`elsif RTLSTM_NO_MULTIPLIERS
  localparam HARD = 0;
`else
  localparam HARD = FIELD + A_BITS + 1 <= `RTLSTM_FACTOR && B_BITS <= 18;
`endif
  generate
    if (HARD) begin : chain
      wire [47:0] between, unused_chain;
      wire [FIELD-1:0] unused_product0, unused_product1;
      rtlstm_xilinx_pair #(.A_BITS(A_BITS), .B_BITS(B_BITS), .FIELD(FIELD), .STAGES(STAGES)) first (
        .clk(clk), .a0(a00), .a1(a10), .b(b0), .pcin(48'd0), .product0(unused_product0), .product1(unused_product1),
        .pcout(between)
      );
      rtlstm_xilinx_pair #(.A_BITS(A_BITS), .B_BITS(B_BITS), .FIELD(FIELD), .STAGES(STAGES), .CHAINED(1)) second (
        .clk(clk), .a0(a01), .a1(a11), .b(b1), .pcin(between), .product0(sum0), .product1(sum1), .pcout(unused_chain)
      );
    end else begin : adders
      wire signed [A_BITS+B_BITS-1:0] product00, product01, product10, product11;
      wire unused_carry0, unused_carry1;
      rtlstm_multiplier_pair #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) first (
        .clk(clk), .a0(a00), .b0(b0), .a1(a10), .b1(b0), .product0(product00), .product1(product10),
        .carry1(unused_carry0)
      );
      rtlstm_multiplier_pair #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) second (
        .clk(clk), .a0(a01), .b0(b1), .a1(a11), .b1(b1), .product0(product01), .product1(product11),
        .carry1(unused_carry1)
      );
      reg signed [A_BITS+B_BITS:0] total0, total1;
      always @(posedge clk) begin
        total0 <= product00 + product01;
        total1 <= product10 + product11;
      end
      assign sum0 = total0;
      assign sum1 = total1;
    end
  endgenerate
endmodule
`undef RTLSTM_FACTOR
