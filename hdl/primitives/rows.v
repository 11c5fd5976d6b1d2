
// Multipliers in logic, for the families whose file has rtlstm_sum: f(a, b) + (c & d) + a carry on one
// carry chain, where FUNCTION is the table of f.

// x * y in rows of adders, one below the other: the first row adds two partial products, each further
// one adds one more. x is signed; the uppermost bit of y counts negative if TOP is set.
module rtlstm_rows #(
  parameter X_BITS = 8,
  parameter Y_BITS = 2,
  parameter TOP = 1
) (
  input [X_BITS-1:0] x,
  input [Y_BITS-1:0] y,
  output [X_BITS+Y_BITS-1:0] product
);
  localparam BITS = X_BITS + 1;
  wire [BITS-1:0] once = {x[X_BITS-1], x};
  wire [BITS-1:0] half = {x[X_BITS-1], x[X_BITS-1], x[X_BITS-1:1]};
  wire [BITS*Y_BITS-1:0] sums;
  genvar i;
  generate
    for (i = 1; i < Y_BITS; i = i + 1) begin : row
      localparam LAST = TOP && i == Y_BITS - 1;
      wire [BITS-1:0] below = {sums[BITS*i-1], sums[BITS*i-1:BITS*(i-1)+1]};
      // once & y[i] is subtracted as its complement plus one.
      rtlstm_sum #(.BITS(BITS), .FUNCTION(LAST ? 4'b0111 : i == 1 ? 4'b1000 : 4'b1010)) adder (
        .a(LAST || i == 1 ? once : below),
        .b({BITS{y[i]}}),
        .c(i == 1 ? half : LAST ? below : once),
        .d(i == 1 ? {BITS{y[0]}} : LAST ? {BITS{1'b1}} : {BITS{y[i]}}),
        .carry_a(LAST ? 1'b1 : 1'b0),
        .carry_b(1'b1),
        .sum(sums[BITS*i +: BITS])
      );
      assign product[i] = sums[BITS*i];
    end
  endgenerate
  assign product[0] = x[0] & y[0];
  assign product[X_BITS+Y_BITS-1:Y_BITS] = sums[BITS*Y_BITS-1:BITS*(Y_BITS-1)+1];
endmodule

// x * y from parts of up to PART bits of y (2 or 3), added in a tree, with REGISTERS (0 to 2) levels of
// registers: behind the parts, then behind the first adders.
module rtlstm_tree #(
  parameter X_BITS = 8,
  parameter Y_BITS = 2,
  parameter TOP = 1,
  parameter PART = 2,
  parameter REGISTERS = 0
) (
  input clk,
  input [X_BITS-1:0] x,
  input [Y_BITS-1:0] y,
  output [X_BITS+Y_BITS-1:0] product
);
  localparam LOW = Y_BITS > 4 * PART ? 4 * PART : Y_BITS > 2 * PART ? 2 * PART : PART;
  localparam HIGH = Y_BITS - LOW;
  localparam BITS = X_BITS + HIGH;
  localparam INNER = REGISTERS == 2 && Y_BITS <= 2 * PART ? 1 : REGISTERS;
  wire [X_BITS+Y_BITS-1:0] result;
  generate
    if (Y_BITS == 1) begin : part
      assign result = x & {X_BITS{y[0]}};
    end else if (Y_BITS <= PART) begin : part
      rtlstm_rows #(.X_BITS(X_BITS), .Y_BITS(Y_BITS), .TOP(TOP)) rows (.x(x), .y(y), .product(result));
    end else begin : part
      wire [X_BITS+LOW-1:0] low;
      wire [BITS-1:0] carried = {{HIGH{low[X_BITS+LOW-1]}}, low[X_BITS+LOW-1:LOW]};
      rtlstm_tree #(.X_BITS(X_BITS), .Y_BITS(LOW), .TOP(0), .PART(PART), .REGISTERS(INNER)) low_tree (
        .clk(clk), .x(x), .y(y[LOW-1:0]), .product(low)
      );
      assign result[LOW-1:0] = low[LOW-1:0];
      if (HIGH == 1 && TOP) begin : high
        // One bit is subtracted in the adder's own tables.
        wire [X_BITS:0] later;
        rtlstm_delay #(.BITS(X_BITS + 1), .CYCLES(INNER)) delay (.clk(clk), .i({y[LOW], x}), .o(later));
        rtlstm_sum #(.BITS(BITS), .FUNCTION(4'b0111)) adder (
          .a({later[X_BITS-1], later[X_BITS-1:0]}), .b({BITS{later[X_BITS]}}), .c(carried), .d({BITS{1'b1}}),
          .carry_a(1'b1), .carry_b(1'b1), .sum(result[X_BITS+Y_BITS-1:LOW])
        );
      end else begin : high
        wire [BITS-1:0] upper;
        rtlstm_tree #(.X_BITS(X_BITS), .Y_BITS(HIGH), .TOP(TOP), .PART(PART), .REGISTERS(INNER)) high_tree (
          .clk(clk), .x(x), .y(y[Y_BITS-1:LOW]), .product(upper)
        );
        if (BITS % 2) begin : sum
          rtlstm_sum #(.BITS(BITS), .FUNCTION(4'b1010)) adder (
            .a(upper), .b({BITS{1'b1}}), .c(carried), .d({BITS{1'b1}}),
            .carry_a(1'b0), .carry_b(1'b1), .sum(result[X_BITS+Y_BITS-1:LOW])
          );
        end else begin : sum
          // An even number of bits and the start of the chain would leave half a cell: the lowest bit
          // is a table of its own, and its carry starts the chain.
          rtlstm_sum #(.BITS(BITS - 1), .FUNCTION(4'b1010)) adder (
            .a(upper[BITS-1:1]), .b({BITS-1{1'b1}}), .c(carried[BITS-1:1]), .d({BITS-1{1'b1}}),
            .carry_a(upper[0]), .carry_b(carried[0]), .sum(result[X_BITS+Y_BITS-1:LOW+1])
          );
          assign result[LOW] = upper[0] ^ carried[0];
        end
      end
    end
  endgenerate
  rtlstm_delay #(.BITS(X_BITS + Y_BITS), .CYCLES(Y_BITS <= PART ? REGISTERS : REGISTERS - INNER)) delay (
    .clk(clk), .i(result), .o(product)
  );
endmodule

module rtlstm_delay #(
  parameter BITS = 1,
  parameter CYCLES = 1
) (
  input clk,
  input [BITS-1:0] i,
  output [BITS-1:0] o
);
  reg [BITS-1:0] later, latest;
  always @(posedge clk) begin
    later <= i;
    latest <= later;
  end
  assign o = CYCLES == 0 ? i : CYCLES == 1 ? later : latest;
endmodule

// A multiplier in logic. With one stage the fewest tables, all rows below each other, or with FAST a tree of
// them. With three, one carry chain from the operands, which come from far, to the first register, and one to the
// next two up to 8 bits in the narrower operand. Where a register is left over, it takes the operands: two rows
// follow it.
module rtlstm_logic_multiplier #(
  parameter X_BITS = 8,
  parameter Y_BITS = 2,
  parameter STAGES = 1,
  parameter FAST = 0
) (
  input clk,
  input [X_BITS-1:0] x,
  input [Y_BITS-1:0] y,
  output [X_BITS+Y_BITS-1:0] product
);
  localparam PART = STAGES - 1 > (Y_BITS > 6 ? 2 : Y_BITS > 3 ? 1 : 0) ? 3 : 2;
  localparam DEEP = Y_BITS > 2 * PART ? 2 : Y_BITS > PART ? 1 : 0;
  localparam REGISTERS = STAGES - 1 < DEEP ? STAGES - 1 : DEEP;
  wire [X_BITS-1:0] x_in;
  wire [Y_BITS-1:0] y_in;
  wire [X_BITS+Y_BITS-1:0] result;
  rtlstm_delay #(.BITS(X_BITS + Y_BITS), .CYCLES(STAGES - 1 - REGISTERS)) operands (
    .clk(clk), .i({x, y}), .o({x_in, y_in})
  );
  generate
    if (STAGES == 1 && !FAST) begin : form
      rtlstm_rows #(.X_BITS(X_BITS), .Y_BITS(Y_BITS), .TOP(1)) rows (.x(x_in), .y(y_in), .product(result));
    end else begin : form
      rtlstm_tree #(.X_BITS(X_BITS), .Y_BITS(Y_BITS), .TOP(1), .PART(PART), .REGISTERS(REGISTERS)) tree (
        .clk(clk), .x(x_in), .y(y_in), .product(result)
      );
    end
  endgenerate
  rtlstm_delay #(.BITS(X_BITS + Y_BITS), .CYCLES(1)) last (.clk(clk), .i(result), .o(product));
endmodule
