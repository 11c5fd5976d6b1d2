// Primitives of a made-up family: memories are inferred, multipliers are TOY_MULT18 cells.

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
  localparam GRANULE = WIDTH / GRANULES;
  (* no_rw_check *)
  reg [WIDTH-1:0] rows [0:DEPTH-1];
  reg [WIDTH-1:0] word, later;
  integer i;
  always @(posedge clk) begin
    word <= rows[read_address];
    later <= word;
    for (i = 0; i < GRANULES; i = i + 1)
      if (write_enable[i]) rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
  end
  assign read_data = OUTREG ? later : word;
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
  reg signed [A_BITS-1:0] a_q;
  reg signed [B_BITS-1:0] b_q;
  always @(posedge clk) begin
    a_q <= a;
    b_q <= b;
  end
  wire signed [A_BITS-1:0] x = STAGES > 1 ? a_q : a;
  wire signed [B_BITS-1:0] y = STAGES > 1 ? b_q : b;
  wire signed [A_BITS+B_BITS-1:0] result;
  generate
    if (KIND == "lut" || A_BITS > 18 || B_BITS > 18) begin : logic_cells
      reg signed [A_BITS+B_BITS-1:0] sum;
      always @(posedge clk) sum <= x * y;
      assign result = sum;
    end else begin : block
      wire signed [17:0] wide_x = x, wide_y = y;
      wire signed [35:0] wide;
`ifdef RTLSTM_SIMULATION
      reg signed [35:0] sum;
      always @(posedge clk) sum <= wide_x * wide_y;
      assign wide = sum;
`else
      TOY_MULT18 cell_18 (.C(clk), .A(wide_x), .B(wide_y), .P(wide));
`endif
      assign result = wide[A_BITS+B_BITS-1:0];
    end
  endgenerate
  reg signed [A_BITS+B_BITS-1:0] last;
  always @(posedge clk) last <= result;
  assign product = STAGES > 2 ? last : result;
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
  rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) first (
    .clk(clk), .a(a0), .b(b0), .product(product0)
  );
  rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) second (
    .clk(clk), .a(a1), .b(b1), .product(product1)
  );
endmodule
