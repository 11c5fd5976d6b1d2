// Behavioural models of the iCE40 cells that the primitives and synthesis use: multiplier block, single
// port RAM, block RAM. Written from what is published of the cells. What the models do not know (a
// parameter's value, a pin in use) ends the simulation.

// Multiplier block: one 16 x 16 or two 8 x 8 products and two 16-bit adders with accumulators. The
// upper and the lower half are alike; the upper one may take the lower one's carry.
module SB_MAC16 #(
  parameter [0:0] NEG_TRIGGER = 0,
  parameter [0:0] C_REG = 0,
  parameter [0:0] A_REG = 0,
  parameter [0:0] B_REG = 0,
  parameter [0:0] D_REG = 0,
  parameter [0:0] TOP_8x8_MULT_REG = 0,
  parameter [0:0] BOT_8x8_MULT_REG = 0,
  parameter [0:0] PIPELINE_16x16_MULT_REG1 = 0,
  parameter [0:0] PIPELINE_16x16_MULT_REG2 = 0,
  parameter [1:0] TOPOUTPUT_SELECT = 0,
  parameter [1:0] TOPADDSUB_LOWERINPUT = 0,
  parameter [0:0] TOPADDSUB_UPPERINPUT = 0,
  parameter [1:0] TOPADDSUB_CARRYSELECT = 0,
  parameter [1:0] BOTOUTPUT_SELECT = 0,
  parameter [1:0] BOTADDSUB_LOWERINPUT = 0,
  parameter [0:0] BOTADDSUB_UPPERINPUT = 0,
  parameter [1:0] BOTADDSUB_CARRYSELECT = 0,
  parameter [0:0] MODE_8x8 = 0,
  parameter [0:0] A_SIGNED = 0,
  parameter [0:0] B_SIGNED = 0
) (
  input CLK, CE,
  input [15:0] C, A, B, D,
  input AHOLD, BHOLD, CHOLD, DHOLD, IRSTTOP, IRSTBOT, ORSTTOP, ORSTBOT, OLOADTOP, OLOADBOT,
  input ADDSUBTOP, ADDSUBBOT, OHOLDTOP, OHOLDBOT, CI, ACCUMCI, SIGNEXTIN,
  output [31:0] O,
  output CO, ACCUMCO, SIGNEXTOUT
);
  // An open pin is low, as in the device; CE alone is high.
  wire enable = CE !== 1'b0;
  reg [15:0] a_q, b_q, c_q, d_q;
  always @(posedge CLK)
    if (enable) begin
      if (AHOLD !== 1'b1) a_q <= A;
      if (BHOLD !== 1'b1) b_q <= B;
      if (CHOLD !== 1'b1) c_q <= C;
      if (DHOLD !== 1'b1) d_q <= D;
    end
  wire [15:0] a = A_REG ? a_q : A;
  wire [15:0] b = B_REG ? b_q : B;
  wire [15:0] c = C_REG ? c_q : C;
  wire [15:0] d = D_REG ? d_q : D;

  // The four products of bytes; as one multiplier the lower bytes carry no sign.
  wire signed [8:0] a_high = {A_SIGNED & a[15], a[15:8]};
  wire signed [8:0] b_high = {B_SIGNED & b[15], b[15:8]};
  wire signed [8:0] a_low = {MODE_8x8 & A_SIGNED & a[7], a[7:0]};
  wire signed [8:0] b_low = {MODE_8x8 & B_SIGNED & b[7], b[7:0]};
  wire signed [17:0] high_now = a_high * b_high, low_now = a_low * b_low;
  wire signed [17:0] cross_a_now = a_high * b_low, cross_b_now = a_low * b_high;
  reg signed [17:0] high_q, low_q, cross_a_q, cross_b_q;
  always @(posedge CLK)
    if (enable) begin
      high_q <= high_now;
      low_q <= low_now;
      cross_a_q <= cross_a_now;
      cross_b_q <= cross_b_now;
    end
  wire signed [17:0] high = TOP_8x8_MULT_REG ? high_q : high_now;
  wire signed [17:0] low = BOT_8x8_MULT_REG ? low_q : low_now;
  wire signed [17:0] cross_a = PIPELINE_16x16_MULT_REG1 ? cross_a_q : cross_a_now;
  wire signed [17:0] cross_b = PIPELINE_16x16_MULT_REG1 ? cross_b_q : cross_b_now;
  wire signed [33:0] whole = high * 34'sd65536 + (cross_a + cross_b) * 34'sd256 + low;
  reg [31:0] whole_q;
  always @(posedge CLK) if (enable) whole_q <= whole[31:0];
  wire [31:0] product = PIPELINE_16x16_MULT_REG2 ? whole_q : whole[31:0];

  // The lower half: adder, then accumulator.
  reg [15:0] low_result, high_result;
  wire [15:0] low_term = BOTADDSUB_LOWERINPUT == 0 ? b : BOTADDSUB_LOWERINPUT == 1 ? low[15:0]
    : BOTADDSUB_LOWERINPUT == 2 ? product[15:0] : {16{SIGNEXTIN}};
  wire [15:0] low_base = BOTADDSUB_UPPERINPUT ? d : low_result;
  wire low_minus = ADDSUBBOT === 1'b1;
  wire low_in = BOTADDSUB_CARRYSELECT == 0 ? 1'b0 : BOTADDSUB_CARRYSELECT == 1 ? 1'b1
    : BOTADDSUB_CARRYSELECT == 2 ? ACCUMCI : CI;
  wire [16:0] low_added = low_term + (low_base ^ {16{low_minus}}) + low_in;
  wire [15:0] low_next = OLOADBOT === 1'b1 ? d : low_added[15:0] ^ {16{low_minus}};

  // The upper half.
  wire [15:0] high_term = TOPADDSUB_LOWERINPUT == 0 ? a : TOPADDSUB_LOWERINPUT == 1 ? high[15:0]
    : TOPADDSUB_LOWERINPUT == 2 ? product[31:16] : {16{low_term[15]}};
  wire [15:0] high_base = TOPADDSUB_UPPERINPUT ? c : high_result;
  wire high_minus = ADDSUBTOP === 1'b1;
  wire high_in = TOPADDSUB_CARRYSELECT == 0 ? 1'b0 : TOPADDSUB_CARRYSELECT == 1 ? 1'b1
    : TOPADDSUB_CARRYSELECT == 2 ? low_added[16] : low_added[16] ^ low_minus;
  wire [16:0] high_added = high_term + (high_base ^ {16{high_minus}}) + high_in;
  wire [15:0] high_next = OLOADTOP === 1'b1 ? c : high_added[15:0] ^ {16{high_minus}};

  always @(posedge CLK)
    if (enable) begin
      if (OHOLDBOT !== 1'b1) low_result <= low_next;
      if (OHOLDTOP !== 1'b1) high_result <= high_next;
    end
  assign O[15:0] = BOTOUTPUT_SELECT == 0 ? low_next : BOTOUTPUT_SELECT == 1 ? low_result
    : BOTOUTPUT_SELECT == 2 ? low[15:0] : product[15:0];
  assign O[31:16] = TOPOUTPUT_SELECT == 0 ? high_next : TOPOUTPUT_SELECT == 1 ? high_result
    : TOPOUTPUT_SELECT == 2 ? high[15:0] : product[31:16];
  assign ACCUMCO = high_added[16];
  assign CO = high_added[16] ^ high_minus;
  assign SIGNEXTOUT = high_term[15];

  task unsupported(input [8*24-1:0] what);
    begin
      $display("SB_MAC16: %0s is set to what the simulation model does not know", what);
      $finish;
    end
  endtask

  initial if (NEG_TRIGGER) unsupported("NEG_TRIGGER");
  always @(IRSTTOP or IRSTBOT) if (IRSTTOP === 1'b1 || IRSTBOT === 1'b1) unsupported("IRST");
  always @(ORSTTOP or ORSTBOT) if (ORSTTOP === 1'b1 || ORSTBOT === 1'b1) unsupported("ORST");
endmodule

// 16 K words of 16 bits, one port; each mask bit enables the writing of 4 bits. A cycle that writes
// leaves X at the output. Contents start as X.
module SB_SPRAM256KA (
  input [13:0] ADDRESS,
  input [15:0] DATAIN,
  input [3:0] MASKWREN,
  input WREN, CHIPSELECT, CLOCK, STANDBY, SLEEP, POWEROFF,
  output reg [15:0] DATAOUT
);
  reg [15:0] cells [0:16383];
  integer i;
  always @(posedge CLOCK)
    if (CHIPSELECT) begin
      if (WREN) begin
        for (i = 0; i < 4; i = i + 1)
          if (MASKWREN[i]) cells[ADDRESS][i*4 +: 4] <= DATAIN[i*4 +: 4];
        DATAOUT <= 16'bx;
      end else DATAOUT <= cells[ADDRESS];
    end
  always @(STANDBY or SLEEP or POWEROFF)
    if (STANDBY === 1'b1 || SLEEP === 1'b1 || POWEROFF === 1'b0) begin
      $display("SB_SPRAM256KA: STANDBY, SLEEP or POWEROFF is set to what the simulation model does not know");
      $finish;
    end
endmodule

// 256 rows of 16 bits, one port to write and one to read. In mode m a port is 16 >> m bits wide: the
// row's bits form groups of 1 << m, of which the upper address bits choose one bit each, at the pin
// that is the group's lowest plus (1 << m) / 2 - 1. Write masks (1 keeps the old bit) work in mode 0
// alone. Bits that are read and written at the same edge read as X. Contents without INIT are X.
module SB_RAM40_4K #(
  parameter WRITE_MODE = 0,
  parameter READ_MODE = 0,
  parameter INIT_FILE = "",
  parameter [255:0] INIT_0 = {256{1'bx}},
  parameter [255:0] INIT_1 = {256{1'bx}},
  parameter [255:0] INIT_2 = {256{1'bx}},
  parameter [255:0] INIT_3 = {256{1'bx}},
  parameter [255:0] INIT_4 = {256{1'bx}},
  parameter [255:0] INIT_5 = {256{1'bx}},
  parameter [255:0] INIT_6 = {256{1'bx}},
  parameter [255:0] INIT_7 = {256{1'bx}},
  parameter [255:0] INIT_8 = {256{1'bx}},
  parameter [255:0] INIT_9 = {256{1'bx}},
  parameter [255:0] INIT_A = {256{1'bx}},
  parameter [255:0] INIT_B = {256{1'bx}},
  parameter [255:0] INIT_C = {256{1'bx}},
  parameter [255:0] INIT_D = {256{1'bx}},
  parameter [255:0] INIT_E = {256{1'bx}},
  parameter [255:0] INIT_F = {256{1'bx}}
) (
  output [15:0] RDATA,
  input RCLK, RCLKE, RE,
  input [10:0] RADDR,
  input WCLK, WCLKE, WE,
  input [10:0] WADDR,
  input [15:0] MASK,
  input [15:0] WDATA
);
  localparam W_GROUP = 1 << WRITE_MODE, R_GROUP = 1 << READ_MODE;
  reg [15:0] cells [0:255];
  reg [15:0] row;
  reg [2:0] part;
  // An open clock enable is high, an open WE or RE low.
  wire write = WCLKE !== 1'b0 && WE === 1'b1;
  integer i, j;
  always @(posedge WCLK)
    if (write)
      for (i = 0; i < 16; i = i + W_GROUP)
        if (WRITE_MODE != 0 || MASK[i] !== 1'b1)
          cells[WADDR[7:0]][i + (WADDR[10:8] & (W_GROUP - 1))] <= WDATA[i + W_GROUP / 2 - (W_GROUP > 1)];
  always @(posedge RCLK)
    if (RCLKE !== 1'b0 && RE === 1'b1) begin
      row <= cells[RADDR[7:0]];
      if (write && WADDR[7:0] == RADDR[7:0])
        for (j = 0; j < 16; j = j + W_GROUP)
          if (WRITE_MODE != 0 || MASK[j] !== 1'b1) row[j + (WADDR[10:8] & (W_GROUP - 1))] <= 1'bx;
      part <= RADDR[10:8] & (R_GROUP - 1);
    end
  genvar pin;
  generate
    for (pin = 0; pin < 16; pin = pin + 1) begin : pins
      if (pin % R_GROUP == R_GROUP / 2 - (R_GROUP > 1))
        assign RDATA[pin] = row[pin / R_GROUP * R_GROUP + part];
      else
        assign RDATA[pin] = 1'b0;
    end
  endgenerate

  wire [4095:0] given = {
    INIT_F, INIT_E, INIT_D, INIT_C, INIT_B, INIT_A, INIT_9, INIT_8, INIT_7, INIT_6, INIT_5, INIT_4, INIT_3,
    INIT_2, INIT_1, INIT_0
  };
  integer word;
  initial begin
    if (WRITE_MODE > 3 || READ_MODE > 3 || INIT_FILE != "") begin
      $display("SB_RAM40_4K: a mode or INIT_FILE is set to what the simulation model does not know");
      $finish;
    end
    for (word = 0; word < 256; word = word + 1) cells[word] = given[word*16 +: 16];
  end
endmodule
