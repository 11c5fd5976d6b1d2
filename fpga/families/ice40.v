
// Primitives for Lattice iCE40 (UltraPlus for multipliers and the huge memory). Same modules, ports and
// cycles as portable.v, where the contract stands.
//
// With RTLSTM_SIMULATION defined there are no hard cells: simulations are several times faster and
// need no models of them. With RTLSTM_NO_MULTIPLIERS defined every multiplier is made of logic.

// STYLE "huge" is made of SB_SPRAM256KA, 16 K words of 16 bits with one port: in a cycle that writes,
// what is read is undefined, whatever its address. All else is left to synthesis: block RAM has
// neither an output register nor an alternative.
module rtlstm_memory #(
  parameter WIDTH = 1,
  parameter DEPTH = 1,
  parameter ABITS = 1,
  parameter GRANULES = 1,
  parameter OUTREG = 0,
  parameter [8*11-1:0] STYLE = "auto"
) (
  input clk,
  input [ABITS-1:0] read_address,
  output [WIDTH-1:0] read_data,
  input [ABITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input [GRANULES-1:0] write_enable
);
  localparam HUGE = STYLE == "huge";
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0;
`else
  localparam HARD = HUGE;
`endif
  localparam GRANULE = WIDTH / GRANULES;
  // A granule fills whole lanes of 4 bits, each with its write mask.
  localparam PER_GRANULE = (GRANULE + 3) / 4;
  localparam SPAN = 4 * PER_GRANULE;
  localparam COLUMNS = (GRANULES * PER_GRANULE + 3) / 4;
  localparam BANKS = (DEPTH + 16383) >> 14;
  wire [WIDTH-1:0] word;
  genvar bank, column, granule;
  integer i;
  generate
    if (HARD) begin : spram
      wire write = write_enable != 0;
      wire [13+ABITS:0] address = write ? write_address : read_address;
      wire [COLUMNS*16-1:0] lanes_in, lanes_out;
      wire [COLUMNS*4-1:0] masks;
      wire [COLUMNS*16*BANKS-1:0] bank_out;
      for (granule = 0; granule < GRANULES; granule = granule + 1) begin : part
        assign lanes_in[granule*SPAN +: SPAN] = write_data[granule*GRANULE +: GRANULE];
        assign masks[granule*PER_GRANULE +: PER_GRANULE] = {PER_GRANULE{write_enable[granule]}};
        assign word[granule*GRANULE +: GRANULE] = lanes_out[granule*SPAN +: GRANULE];
      end
      if (COLUMNS * 4 > GRANULES * PER_GRANULE) begin : rest
        assign lanes_in[COLUMNS*16-1:GRANULES*SPAN] = 0;
        assign masks[COLUMNS*4-1:GRANULES*PER_GRANULE] = 0;
      end
      for (bank = 0; bank < BANKS; bank = bank + 1) begin : banks
        wire selected = BANKS == 1 || address[13+ABITS:14] == bank;
        for (column = 0; column < COLUMNS; column = column + 1) begin : row
          SB_SPRAM256KA ram (
            .ADDRESS(address[13:0]),
            .DATAIN(lanes_in[column*16 +: 16]),
            .MASKWREN(masks[column*4 +: 4]),
            .WREN(write),
            .CHIPSELECT(selected),
            .CLOCK(clk),
            .STANDBY(1'b0),
            .SLEEP(1'b0),
            .POWEROFF(1'b1),
            .DATAOUT(bank_out[(bank*COLUMNS+column)*16 +: 16])
          );
        end
      end
      if (BANKS == 1) begin : choice
        assign lanes_out = bank_out;
      end else begin : choice
        reg [ABITS-1:0] read_bank;
        always @(posedge clk) read_bank <= address[13+ABITS:14];
        assign lanes_out = bank_out[read_bank*COLUMNS*16 +: COLUMNS*16];
      end
    end else begin : inferred
      wire clash = HUGE && write_enable != 0;
      reg [WIDTH-1:0] now;
      if (STYLE == "block") begin : style
        (* no_rw_check, ram_style = "block" *)
        reg [WIDTH-1:0] rows [0:DEPTH-1];
        always @(posedge clk) begin
          now <= rows[read_address];
          for (i = 0; i < GRANULES; i = i + 1)
            if (write_enable[i])
              rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
        end
      end else begin : style
        (* no_rw_check *)
        reg [WIDTH-1:0] rows [0:DEPTH-1];
        always @(posedge clk) begin
          now <= clash ? {WIDTH{1'bx}} : rows[read_address];
          for (i = 0; i < GRANULES; i = i + 1)
            if (write_enable[i])
              rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
        end
      end
      assign word = now;
    end
    if (OUTREG != 0) begin : output_register
      reg [WIDTH-1:0] later;
      always @(posedge clk) later <= word;
      assign read_data = later;
    end else begin : output_register
      assign read_data = word;
    end
  endgenerate
endmodule

// f(a, b) + (c & d) + (carry_a & carry_b): see rows.v. Partial products take tables of their own here.
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

// A multiplier block as one product of up to 16 x 16, or as two of up to 8 x 8. Operands go to the
// upper bits, so that no sign has to be wired to many pins. The registers: behind the operands with
// two stages or more; behind the partial products (with three); at the output. As two multipliers it
// has no register after the products but that of its adders, which then add 0.
module rtlstm_ice40_multiplier #(
  parameter TWO = 0,
  parameter STAGES = 1,
  parameter OUTPUT = 1
) (
  input clk,
  input [15:0] a,
  input [15:0] b,
  output [31:0] product
);
  localparam [0:0] INPUTS = STAGES > 1;
  localparam [0:0] PARTS = TWO || STAGES > 2;
  localparam [0:0] MIDDLE = !TWO && STAGES > 2;
  localparam [0:0] LAST = !TWO && OUTPUT;
  localparam [0:0] SPLIT = TWO;
  localparam [1:0] SELECT = !TWO ? 2'd3 : STAGES > 2 ? 2'd1 : 2'd2;
  localparam [1:0] ADDED = TWO ? 2'd1 : 2'd0;
  SB_MAC16 #(
    .NEG_TRIGGER(1'b0),
    .A_REG(INPUTS),
    .B_REG(INPUTS),
    .C_REG(1'b0),
    .D_REG(1'b0),
    .TOP_8x8_MULT_REG(PARTS),
    .BOT_8x8_MULT_REG(PARTS),
    .PIPELINE_16x16_MULT_REG1(MIDDLE),
    .PIPELINE_16x16_MULT_REG2(LAST),
    .TOPOUTPUT_SELECT(SELECT),
    .TOPADDSUB_LOWERINPUT(ADDED),
    .TOPADDSUB_UPPERINPUT(1'b1),
    .TOPADDSUB_CARRYSELECT(2'b00),
    .BOTOUTPUT_SELECT(SELECT),
    .BOTADDSUB_LOWERINPUT(ADDED),
    .BOTADDSUB_UPPERINPUT(1'b1),
    .BOTADDSUB_CARRYSELECT(2'b00),
    .MODE_8x8(SPLIT),
    .A_SIGNED(1'b1),
    .B_SIGNED(1'b1)
  ) multiplier (
    .CLK(clk), .CE(1'b1), .A(a), .B(b), .C(16'd0), .D(16'd0), .O(product),
    .AHOLD(1'b0), .BHOLD(1'b0), .CHOLD(1'b0), .DHOLD(1'b0),
    .IRSTTOP(1'b0), .IRSTBOT(1'b0), .ORSTTOP(1'b0), .ORSTBOT(1'b0),
    .OLOADTOP(1'b0), .OLOADBOT(1'b0), .ADDSUBTOP(1'b0), .ADDSUBBOT(1'b0),
    .OHOLDTOP(1'b0), .OHOLDBOT(1'b0), .CI(1'b0), .ACCUMCI(1'b0), .SIGNEXTIN(1'b0)
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
    end else if (HARD && A_BITS <= 16 && B_BITS <= 16) begin : block
      wire [31:0] a_wide = {a, 16'd0};
      wire [31:0] b_wide = {b, 16'd0};
      wire [31:0] full;
      rtlstm_ice40_multiplier #(.TWO(0), .STAGES(STAGES)) multiplier (
        .clk(clk), .a(a_wide[A_BITS +: 16]), .b(b_wide[B_BITS +: 16]), .product(full)
      );
      assign product = full[31:32-A_BITS-B_BITS];
    end else if (HARD && A_BITS <= 20 && B_BITS <= 20) begin : wider
      // The upper 16 bits of each operand in a block, without its output register; the few bits below
      // in logic behind it, where the output registers are.
      localparam A_LOW = A_BITS > 16 ? A_BITS - 16 : 0;
      localparam B_LOW = B_BITS > 16 ? B_BITS - 16 : 0;
      localparam BITS = A_BITS + B_BITS;
      wire [31:0] a_wide = {a, 16'd0};
      wire [31:0] b_wide = {b, 16'd0};
      wire signed [31:0] full;
      wire [A_BITS-1:0] a_in;
      wire [B_BITS-1:0] b_in;
      rtlstm_ice40_multiplier #(.STAGES(STAGES > 1 ? 2 : 1), .OUTPUT(0)) multiplier (
        .clk(clk),
        .a(A_LOW ? a[A_BITS-1:A_LOW] : a_wide[A_BITS +: 16]),
        .b(B_LOW ? b[B_BITS-1:B_LOW] : b_wide[B_BITS +: 16]),
        .product(full)
      );
      rtlstm_delay #(.BITS(BITS), .CYCLES(STAGES > 1 ? 1 : 0)) operands (.clk(clk), .i({a, b}), .o({a_in, b_in}));
      // a b = a_high b_high << both + (a_high b_low) << A_LOW + a_low b
      localparam SHIFT = 32 - (A_LOW ? 16 : A_BITS) - (B_LOW ? 16 : B_BITS);
      wire signed [BITS:0] upper = full >>> SHIFT;
      localparam [3:0] A_MASK = (1 << A_LOW) - 1, B_MASK = (1 << B_LOW) - 1;
      wire [A_BITS+3:0] a_more = {4'd0, a_in};
      wire [B_BITS+3:0] b_more = {4'd0, b_in};
      wire signed [4:0] a_low = {1'b0, a_more[3:0] & A_MASK};
      wire signed [4:0] b_low = {1'b0, b_more[3:0] & B_MASK};
      wire signed [A_BITS-1:0] a_all = a_in, a_high = a_all >>> A_LOW;
      wire signed [B_BITS-1:0] b_all = b_in;
      wire signed [BITS:0] sum = (upper <<< (A_LOW + B_LOW)) + ((a_high * b_low) <<< A_LOW) + a_low * b_all;
      rtlstm_delay #(.BITS(BITS), .CYCLES(STAGES > 2 ? 2 : 1)) last (.clk(clk), .i(sum[BITS-1:0]), .o(product));
    end else begin : inferred
      wire signed [A_BITS-1:0] a_in;
      wire signed [B_BITS-1:0] b_in;
      reg signed [A_BITS+B_BITS-1:0] result, later;
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

// Two products of up to 8 x 8 take one block, with a shared operand or without.
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
  // A block takes two products with a shared operand or without.
  localparam unused = SHARED;
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0;
`elsif RTLSTM_NO_MULTIPLIERS
  localparam HARD = 0;
`else
  localparam HARD = KIND == "dsp" && A_BITS <= 8 && B_BITS <= 8;
`endif
  generate
    if (HARD) begin : one
      wire [15:0] a0_wide = {a0, 8'd0};
      wire [15:0] b0_wide = {b0, 8'd0};
      wire [15:0] a1_wide = {a1, 8'd0};
      wire [15:0] b1_wide = {b1, 8'd0};
      wire [31:0] full;
      rtlstm_ice40_multiplier #(.TWO(1), .STAGES(STAGES)) multiplier (
        .clk(clk),
        .a({a1_wide[A_BITS +: 8], a0_wide[A_BITS +: 8]}),
        .b({b1_wide[B_BITS +: 8], b0_wide[B_BITS +: 8]}),
        .product(full)
      );
      assign product0 = full[15:16-A_BITS-B_BITS];
      assign product1 = full[31:32-A_BITS-B_BITS];
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
