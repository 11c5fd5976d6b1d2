
// Primitives for Lattice ECP5: block RAM and multipliers with their own registers, which synthesis
// does not infer. Same modules, ports and cycles as portable.v, where the contract stands.
//
// With RTLSTM_SIMULATION defined there are no hard cells: simulations are several times faster and
// need no models of them. With RTLSTM_NO_MULTIPLIERS defined every multiplier is made of logic.

// One block RAM as BITS-wide memory with one read and one write port; BITS is 36, 18, 9, 4, 2 or 1.
// Each write enable covers 9 bits, or all of them if BITS is less. A word that is read and written
// at the same edge reads as anything. With BOTH = 1, for up to 18 bits, the write port reads, too, in
// cycles in which it does not write.
module rtlstm_ecp5_ram #(
  parameter BITS = 36,
  parameter ABITS = 9,
  parameter LANES = 4,
  parameter OUTREG = 0,
  parameter BOTH = 0
) (
  input clk,
  input [ABITS-1:0] read_address,
  output [BITS-1:0] read_data,
  input [ABITS-1:0] write_address,
  input [BITS-1:0] write_data,
  input [LANES-1:0] write_enable,
  output [BITS-1:0] other_data
);
  localparam REGMODE = OUTREG ? "OUTREG" : "NOREG";
  wire [35:0] data = write_data;
  wire [17:0] dia = data[17:0];
  wire [17:0] dib = BITS == 36 ? data[35:18] : 18'd0;
  // Addresses are left-aligned: the low bits count bits, or enable lanes of 9 bits.
  wire [13:0] adb = {read_address, {14 - ABITS{1'b0}}};
  wire [13:0] write_low = BITS < 18 ? 14'd0 : {10'd0, {4 - LANES{1'b0}}, write_enable};
  wire [13:0] ada = {write_address, {14 - ABITS{1'b0}}} | write_low;
  wire wea = BITS < 18 || BOTH ? write_enable[0] : 1'b1;
  wire [17:0] doa, dob;
  generate
    if (BITS == 36) begin : simple_dual_port
      assign read_data = {dob, doa};
      assign other_data = {BITS{1'b0}};
    end else begin : dual_port
      assign read_data = dob[BITS-1:0];
      assign other_data = doa[BITS-1:0];
    end
  endgenerate
  DP16KD #(
    .DATA_WIDTH_A(BITS),
    .DATA_WIDTH_B(BITS),
    .REGMODE_A(REGMODE),
    .REGMODE_B(REGMODE),
    .RESETMODE("SYNC"),
    .ASYNC_RESET_RELEASE("SYNC"),
    .CSDECODE_A("0b000"),
    .CSDECODE_B("0b000"),
    .WRITEMODE_A("NORMAL"),
    .WRITEMODE_B("NORMAL"),
    .CLKAMUX("CLKA"),
    .CLKBMUX("CLKB"),
    .GSR("DISABLED")
  ) ram (
    .CLKA(clk), .CEA(1'b1), .OCEA(1'b1), .WEA(wea), .RSTA(1'b0), .CSA0(1'b0), .CSA1(1'b0), .CSA2(1'b0),
    .CLKB(clk), .CEB(1'b1), .OCEB(1'b1), .WEB(1'b0), .RSTB(1'b0), .CSB0(1'b0), .CSB1(1'b0), .CSB2(1'b0),
    .ADA0(ada[0]), .ADA1(ada[1]), .ADA2(ada[2]), .ADA3(ada[3]), .ADA4(ada[4]), .ADA5(ada[5]), .ADA6(ada[6]),
    .ADA7(ada[7]), .ADA8(ada[8]), .ADA9(ada[9]), .ADA10(ada[10]), .ADA11(ada[11]), .ADA12(ada[12]),
    .ADA13(ada[13]),
    .DIA0(dia[0]), .DIA1(dia[1]), .DIA2(dia[2]), .DIA3(dia[3]), .DIA4(dia[4]), .DIA5(dia[5]), .DIA6(dia[6]),
    .DIA7(dia[7]), .DIA8(dia[8]), .DIA9(dia[9]), .DIA10(dia[10]), .DIA11(dia[11]), .DIA12(dia[12]),
    .DIA13(dia[13]), .DIA14(dia[14]), .DIA15(dia[15]), .DIA16(dia[16]), .DIA17(dia[17]),
    .ADB0(adb[0]), .ADB1(adb[1]), .ADB2(adb[2]), .ADB3(adb[3]), .ADB4(adb[4]), .ADB5(adb[5]), .ADB6(adb[6]),
    .ADB7(adb[7]), .ADB8(adb[8]), .ADB9(adb[9]), .ADB10(adb[10]), .ADB11(adb[11]), .ADB12(adb[12]),
    .ADB13(adb[13]),
    .DIB0(dib[0]), .DIB1(dib[1]), .DIB2(dib[2]), .DIB3(dib[3]), .DIB4(dib[4]), .DIB5(dib[5]), .DIB6(dib[6]),
    .DIB7(dib[7]), .DIB8(dib[8]), .DIB9(dib[9]), .DIB10(dib[10]), .DIB11(dib[11]), .DIB12(dib[12]),
    .DIB13(dib[13]), .DIB14(dib[14]), .DIB15(dib[15]), .DIB16(dib[16]), .DIB17(dib[17]),
    .DOA0(doa[0]), .DOA1(doa[1]), .DOA2(doa[2]), .DOA3(doa[3]), .DOA4(doa[4]), .DOA5(doa[5]), .DOA6(doa[6]),
    .DOA7(doa[7]), .DOA8(doa[8]), .DOA9(doa[9]), .DOA10(doa[10]), .DOA11(doa[11]), .DOA12(doa[12]),
    .DOA13(doa[13]), .DOA14(doa[14]), .DOA15(doa[15]), .DOA16(doa[16]), .DOA17(doa[17]),
    .DOB0(dob[0]), .DOB1(dob[1]), .DOB2(dob[2]), .DOB3(dob[3]), .DOB4(dob[4]), .DOB5(dob[5]), .DOB6(dob[6]),
    .DOB7(dob[7]), .DOB8(dob[8]), .DOB9(dob[9]), .DOB10(dob[10]), .DOB11(dob[11]), .DOB12(dob[12]),
    .DOB13(dob[13]), .DOB14(dob[14]), .DOB15(dob[15]), .DOB16(dob[16]), .DOB17(dob[17])
  );
endmodule

// Registers that stay beside what reads them: each of these has copies elsewhere.
module rtlstm_copy #(
  parameter BITS = 1
) (
  input clk,
  input [BITS-1:0] value,
  output [BITS-1:0] copied
);
`ifdef RTLSTM_SIMULATION
  reg [BITS-1:0] bits;
  always @(posedge clk) bits <= value;
  assign copied = bits;
`else
  rtlstm_ecp5_copy #(.BITS(BITS)) registers (.clk(clk), .i(value), .o(copied));
`endif
endmodule

// A register of its own beside each block RAM: synthesis would make one of all that hold the same, with
// thousands of loads all over the die.
module rtlstm_ecp5_copy #(
  parameter BITS = 1,
  parameter STAGES = 1
) (
  input clk,
  input [BITS-1:0] i,
  output [BITS-1:0] o
);
  genvar place;
  generate
    if (STAGES == 0) begin : none
      assign o = i;
    end else begin : one
      for (place = 0; place < BITS; place = place + 1) begin : bits
        (* keep *) TRELLIS_FF #(
          .GSR("DISABLED"), .CEMUX("1"), .CLKMUX("CLK"), .LSRMUX("LSR"), .REGSET("RESET"), .SRMODE("LSR_OVER_CE")
        ) register (.CLK(clk), .CE(1'b1), .LSR(1'b0), .DI(i[place]), .Q(o[place]));
      end
    end
  endgenerate
endmodule

// Block RAMs are used for STYLE "block" and "huge", and for "auto" beyond 64 words or, with an output
// register, 1,024 bits. Memories with that register are fast ones: small ones of style "auto" are distributed RAM,
// whose registers can be put next to where the word goes. Else synthesis chooses. Of all aspects of the block RAM, the one that takes the fewest blocks, and
// of those the deepest, so that few banks have to be told apart.
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
  localparam GRANULE = WIDTH / GRANULES;
  // Synthesis would make block RAM of small and wide memories, too, but without its output register.
  localparam LARGE = DEPTH > 64 || (OUTREG != 0 && DEPTH * WIDTH > 1024);
  localparam DISTRIBUTED = STYLE == "distributed" || (STYLE == "auto" && OUTREG != 0 && !LARGE);
  localparam BLOCK = !DISTRIBUTED && (STYLE != "auto" || LARGE);
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0;
  // What is read and written at the same edge is not to be relied on, in distributed RAM either.
  localparam UNDEFINED = BLOCK || OUTREG != 0;
`else
  localparam HARD = BLOCK;
  localparam UNDEFINED = 0;
`endif

  // A granule fills whole lanes (what one write enable of the block RAM covers).
  function integer lane_bits(input integer bits);
    lane_bits = bits < 9 ? bits : 9;
  endfunction

  function integer granule_lanes(input integer bits);
    granule_lanes = (GRANULE + lane_bits(bits) - 1) / lane_bits(bits);
  endfunction

  function integer columns(input integer bits);
    columns = (GRANULES * granule_lanes(bits) * lane_bits(bits) + bits - 1) / bits;
  endfunction

  function integer address_bits(input integer bits);
    address_bits = bits == 36 ? 9 : bits == 18 ? 10 : bits == 9 ? 11 : bits == 4 ? 12 : bits == 2 ? 13 : 14;
  endfunction

  function integer blocks(input integer bits);
    blocks = columns(bits) * ((DEPTH + (1 << address_bits(bits)) - 1) >> address_bits(bits));
  endfunction

  function integer aspect(input integer unused);
    begin
      aspect = 36;
      if (blocks(18) <= blocks(aspect)) aspect = 18;
      if (blocks(9) <= blocks(aspect)) aspect = 9;
      if (blocks(4) <= blocks(aspect)) aspect = 4;
      if (blocks(2) <= blocks(aspect)) aspect = 2;
      if (blocks(1) <= blocks(aspect)) aspect = 1;
    end
  endfunction

  localparam BITS = aspect(0);
  localparam LANE = lane_bits(BITS);
  localparam LANES = BITS / LANE;
  localparam PER_GRANULE = granule_lanes(BITS);
  localparam COLUMNS = columns(BITS);
  localparam WORD_BITS = address_bits(BITS);
  localparam BANKS = (DEPTH + (1 << WORD_BITS) - 1) >> WORD_BITS;
  localparam SPAN = PER_GRANULE * LANE;

  genvar bank, column, granule, place;
  integer i;
  generate
    if (!HARD) begin : inferred
      wire clash = UNDEFINED && write_enable != 0 && read_address == write_address;
      reg [WIDTH-1:0] word;
      if (DISTRIBUTED) begin : style
        (* no_rw_check, ram_style = "distributed" *)
        reg [WIDTH-1:0] rows [0:DEPTH-1];
        always @(posedge clk) begin
          word <= clash ? {WIDTH{1'bx}} : rows[read_address];
          for (i = 0; i < GRANULES; i = i + 1)
            if (write_enable[i])
              rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
        end
      end else begin : style
        (* no_rw_check *)
        reg [WIDTH-1:0] rows [0:DEPTH-1];
        always @(posedge clk) begin
          word <= clash ? {WIDTH{1'bx}} : rows[read_address];
          for (i = 0; i < GRANULES; i = i + 1)
            if (write_enable[i])
              rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
        end
      end
      if (OUTREG != 0) begin : output_register
        reg [WIDTH-1:0] later;
        always @(posedge clk) later <= word;
        assign read_data = later;
      end else begin : output_register
        assign read_data = word;
      end
    end else begin : block
      wire [COLUMNS*BITS-1:0] lanes_in, lanes_out;
      wire [COLUMNS*LANES-1:0] enables;
      wire [COLUMNS*BITS*BANKS-1:0] bank_out;
      wire [WORD_BITS+ABITS-1:0] reads = read_address, writes = write_address;
      for (granule = 0; granule < GRANULES; granule = granule + 1) begin : part
        assign lanes_in[granule*SPAN +: SPAN] = write_data[granule*GRANULE +: GRANULE];
        assign enables[granule*PER_GRANULE +: PER_GRANULE] = {PER_GRANULE{write_enable[granule]}};
        assign read_data[granule*GRANULE +: GRANULE] = lanes_out[granule*SPAN +: GRANULE];
      end
      if (COLUMNS * LANES > GRANULES * PER_GRANULE) begin : rest
        assign lanes_in[COLUMNS*BITS-1:GRANULES*SPAN] = 0;
        assign enables[COLUMNS*LANES-1:GRANULES*PER_GRANULE] = 0;
      end
      for (bank = 0; bank < BANKS; bank = bank + 1) begin : banks
        // Beside each memory's own enable: an enable of the port would be shared between memories of one address.
        wire selected = BANKS == 1 || writes[WORD_BITS+ABITS-1:WORD_BITS] == bank;
        for (column = 0; column < COLUMNS; column = column + 1) begin : row
          wire [BITS-1:0] unused;
          rtlstm_ecp5_ram #(.BITS(BITS), .ABITS(WORD_BITS), .LANES(LANES), .OUTREG(OUTREG)) ram (
            .clk(clk),
            .read_address(reads[WORD_BITS-1:0]),
            .read_data(bank_out[(bank*COLUMNS+column)*BITS +: BITS]),
            .write_address(writes[WORD_BITS-1:0]),
            .write_data(lanes_in[column*BITS +: BITS]),
            .write_enable(enables[column*LANES +: LANES] & {LANES{selected}}),
            .other_data(unused)
          );
        end
      end
      if (BANKS == 1) begin : choice
        assign lanes_out = bank_out;
      end else begin : choice
        localparam BANK_BITS = ABITS - WORD_BITS;
        reg [BANK_BITS-1:0] read_bank;
        always @(posedge clk) read_bank <= read_address[ABITS-1:WORD_BITS];
        for (column = 0; column < COLUMNS; column = column + 1) begin : copies
          wire [BANK_BITS-1:0] chosen;
          rtlstm_ecp5_copy #(.BITS(BANK_BITS), .STAGES(OUTREG)) copy (.clk(clk), .i(read_bank), .o(chosen));
          for (place = 0; place < BITS; place = place + 1) begin : bits
            wire [BANKS-1:0] words;
            for (bank = 0; bank < BANKS; bank = bank + 1) begin : banks
              assign words[bank] = bank_out[(bank*COLUMNS+column)*BITS+place];
            end
            assign lanes_out[column*BITS+place] = words[chosen];
          end
        end
      end
    end
  endgenerate
endmodule

// Both ports of a block RAM read, and the first one writes. Of all aspects that hold DEPTH words in one bank,
// the widest.
module rtlstm_memory_pair #(
  parameter WIDTH = 1,
  parameter DEPTH = 1,
  parameter ABITS = 1,
  parameter OUTREG = 0
) (
  input clk,
  input [ABITS-1:0] address0,
  output [WIDTH-1:0] read_data0,
  input [ABITS-1:0] address1,
  output [WIDTH-1:0] read_data1,
  input [WIDTH-1:0] write_data,
  input write_enable
);
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0;
`else
  localparam HARD = 1;
`endif
  localparam BITS = DEPTH <= 1024 ? 18 : DEPTH <= 2048 ? 9 : DEPTH <= 4096 ? 4 : DEPTH <= 8192 ? 2 : 1;
  localparam WORD_BITS = BITS == 18 ? 10 : BITS == 9 ? 11 : BITS == 4 ? 12 : BITS == 2 ? 13 : 14;
  localparam LANES = BITS == 18 ? 2 : 1;
  localparam COLUMNS = (WIDTH + BITS - 1) / BITS;
  genvar column;
  generate
    if (!HARD) begin : inferred
      reg [WIDTH-1:0] rows [0:DEPTH-1];
      reg [WIDTH-1:0] word0, word1, later0, later1;
      wire clash = write_enable && address1 == address0;
      always @(posedge clk) begin
        word0 <= write_enable ? {WIDTH{1'bx}} : rows[address0];
        word1 <= clash ? {WIDTH{1'bx}} : rows[address1];
        if (write_enable) rows[address0] <= write_data;
        later0 <= word0;
        later1 <= word1;
      end
      assign read_data0 = OUTREG != 0 ? later0 : word0;
      assign read_data1 = OUTREG != 0 ? later1 : word1;
    end else begin : block
      wire [WORD_BITS-1:0] one = address0, other = address1;
      wire [COLUMNS*BITS-1:0] columns_in = write_data;
      wire [COLUMNS*BITS-1:0] columns0, columns1;
      assign read_data0 = columns0[WIDTH-1:0];
      assign read_data1 = columns1[WIDTH-1:0];
      for (column = 0; column < COLUMNS; column = column + 1) begin : columns
        rtlstm_ecp5_ram #(.BITS(BITS), .ABITS(WORD_BITS), .LANES(LANES), .OUTREG(OUTREG), .BOTH(1)) ram (
          .clk(clk),
          .read_address(other),
          .read_data(columns1[column*BITS +: BITS]),
          .write_address(one),
          .write_data(columns_in[column*BITS +: BITS]),
          .write_enable({LANES{write_enable}}),
          .other_data(columns0[column*BITS +: BITS])
        );
      end
    end
  endgenerate
endmodule

// One 18 x 18 multiplier with its own registers. Narrow operands go to the upper bits, so that no sign
// has to be wired to many pins.
module rtlstm_ecp5_multiplier #(
  parameter A_BITS = 18,
  parameter B_BITS = 18,
  parameter INPUTS = 0,
  parameter PIPELINE = 0,
  parameter OUTPUT = 1
) (
  input clk,
  input [A_BITS-1:0] a_in,
  input [B_BITS-1:0] b_in,
  output [A_BITS+B_BITS-1:0] product
);
  wire [35:0] a_wide = {a_in, 18'd0};
  wire [35:0] b_wide = {b_in, 18'd0};
  wire [17:0] a = a_wide[A_BITS +: 18];
  wire [17:0] b = b_wide[B_BITS +: 18];
  wire [35:0] p;
  assign product = p[35:36-A_BITS-B_BITS];
  MULT18X18D #(
    .REG_INPUTA_CLK(INPUTS ? "CLK0" : "NONE"),
    .REG_INPUTA_CE("CE0"),
    .REG_INPUTA_RST("RST0"),
    .REG_INPUTB_CLK(INPUTS ? "CLK0" : "NONE"),
    .REG_INPUTB_CE("CE0"),
    .REG_INPUTB_RST("RST0"),
    .REG_INPUTC_CLK("NONE"),
    .REG_PIPELINE_CLK(PIPELINE ? "CLK0" : "NONE"),
    .REG_PIPELINE_CE("CE0"),
    .REG_PIPELINE_RST("RST0"),
    .REG_OUTPUT_CLK(OUTPUT ? "CLK0" : "NONE"),
    .REG_OUTPUT_CE("CE0"),
    .REG_OUTPUT_RST("RST0"),
    .SOURCEB_MODE("B_SHIFT"),
    .RESETMODE("SYNC"),
    .GSR("DISABLED")
  ) multiplier (
    .CLK0(clk), .CE0(1'b1), .RST0(1'b0), .SIGNEDA(1'b1), .SIGNEDB(1'b1), .SOURCEA(1'b0), .SOURCEB(1'b0),
    .A0(a[0]), .A1(a[1]), .A2(a[2]), .A3(a[3]), .A4(a[4]), .A5(a[5]), .A6(a[6]), .A7(a[7]), .A8(a[8]),
    .A9(a[9]), .A10(a[10]), .A11(a[11]), .A12(a[12]), .A13(a[13]), .A14(a[14]), .A15(a[15]), .A16(a[16]),
    .A17(a[17]),
    .B0(b[0]), .B1(b[1]), .B2(b[2]), .B3(b[3]), .B4(b[4]), .B5(b[5]), .B6(b[6]), .B7(b[7]), .B8(b[8]),
    .B9(b[9]), .B10(b[10]), .B11(b[11]), .B12(b[12]), .B13(b[13]), .B14(b[14]), .B15(b[15]), .B16(b[16]),
    .B17(b[17]),
    .P0(p[0]), .P1(p[1]), .P2(p[2]), .P3(p[3]), .P4(p[4]), .P5(p[5]), .P6(p[6]), .P7(p[7]), .P8(p[8]),
    .P9(p[9]), .P10(p[10]), .P11(p[11]), .P12(p[12]), .P13(p[13]), .P14(p[14]), .P15(p[15]), .P16(p[16]),
    .P17(p[17]), .P18(p[18]), .P19(p[19]), .P20(p[20]), .P21(p[21]), .P22(p[22]), .P23(p[23]), .P24(p[24]),
    .P25(p[25]), .P26(p[26]), .P27(p[27]), .P28(p[28]), .P29(p[29]), .P30(p[30]), .P31(p[31]), .P32(p[32]),
    .P33(p[33]), .P34(p[34]), .P35(p[35])
  );
endmodule

// sum = f(a, b) + (c & d) + (carry_a & carry_b), bit by bit on one carry chain: FUNCTION is the table
// of f. A cell's lookup table holds f ^ (c & d); its low quarter, f alone, makes the carry. The first
// half cell only starts the chain, so that the unconnected carry input of the cell has no effect.
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
  localparam CELLS = BITS / 2 + 1;
  wire [2*CELLS:0] all_a = {1'b1, a, carry_a};
  wire [2*CELLS:0] all_b = {1'b1, b, carry_b};
  wire [2*CELLS:0] all_c = {1'b1, c, 1'b1};
  wire [2*CELLS:0] all_d = {1'b1, d, 1'b1};
  wire [2*CELLS-1:0] all_sum;
  wire [CELLS:0] carry;
  genvar i;
  assign sum = all_sum[BITS:1];
  generate
    for (i = 0; i < CELLS; i = i + 1) begin : cells
      CCU2C #(
        .INIT0(i == 0 ? 16'h0008 : {~FUNCTION, FUNCTION, FUNCTION, FUNCTION}),
        .INIT1({~FUNCTION, FUNCTION, FUNCTION, FUNCTION}),
        .INJECT1_0("NO"),
        .INJECT1_1("NO")
      ) two (
        .CIN(i == 0 ? 1'bx : carry[i]),
        .A0(all_a[2*i]), .B0(all_b[2*i]), .C0(all_c[2*i]), .D0(all_d[2*i]), .S0(all_sum[2*i]),
        .A1(all_a[2*i+1]), .B1(all_b[2*i+1]), .C1(all_c[2*i+1]), .D1(all_d[2*i+1]), .S1(all_sum[2*i+1]),
        .COUT(carry[i+1])
      );
    end
  endgenerate
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
      rtlstm_logic_multiplier #(.X_BITS(A_BITS), .Y_BITS(B_BITS), .STAGES(STAGES), .FAST(1)) multiplier (
        .clk(clk), .x(a), .y(b), .product(product)
      );
    end else if (HARD && LOGIC) begin : tables
      rtlstm_logic_multiplier #(.X_BITS(B_BITS), .Y_BITS(A_BITS), .STAGES(STAGES), .FAST(1)) multiplier (
        .clk(clk), .x(b), .y(a), .product(product)
      );
    end else if (HARD && A_BITS <= 18 && B_BITS <= 18) begin : block
      rtlstm_ecp5_multiplier #(
        .A_BITS(A_BITS), .B_BITS(B_BITS), .INPUTS(STAGES > 1), .PIPELINE(STAGES > 2)
      ) multiplier (.clk(clk), .a_in(a), .b_in(b), .product(product));
    end else begin : inferred
      // Wider operands take several blocks, which synthesis composes.
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

// Two products with the same b in one multiplier, (a1 << K) + a0 times b, if a1 and its borrow fit:
// 2 A_BITS + B_BITS + 1 <= 18. Logic takes the borrow of a0 out of a1 before the multiplier. The upper product
// lacks 1 where the lower one is negative: this is the carry of the next adder, and all registers are the
// block's own.
module rtlstm_ecp5_packed_pair #(
  parameter A_BITS = 4,
  parameter B_BITS = 8,
  parameter STAGES = 3
) (
  input clk,
  input [A_BITS-1:0] a0,
  input [A_BITS-1:0] a1,
  input [B_BITS-1:0] b,
  output [A_BITS+B_BITS-1:0] product0,
  output [A_BITS+B_BITS-1:0] product1,
  output carry1
);
  localparam BITS = A_BITS + B_BITS;
  localparam WIDE = BITS + A_BITS + 1;
  // a1 - 1 if a0 is negative: a bit turns over if all below it are 0.
  wire [A_BITS:0] turned;
  wire [A_BITS:0] upper = {a1[A_BITS-1], a1} ^ turned;
  wire [WIDE-1:0] packed_a = {upper, {B_BITS{a0[A_BITS-1]}}, a0};
  wire [WIDE+B_BITS-1:0] both;
  genvar i;
  assign turned[0] = a0[A_BITS-1];
  generate
    for (i = 1; i <= A_BITS; i = i + 1) begin : borrow
      assign turned[i] = a0[A_BITS-1] & ~|a1[i-1:0];
    end
  endgenerate
  rtlstm_ecp5_multiplier #(
    .A_BITS(WIDE), .B_BITS(B_BITS), .INPUTS(STAGES > 1), .PIPELINE(STAGES > 2)
  ) multiplier (.clk(clk), .a_in(packed_a), .b_in(b), .product(both));
  assign product0 = both[BITS-1:0];
  assign product1 = both[2*BITS-1:BITS];
  assign carry1 = both[BITS-1];
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
`ifdef RTLSTM_SIMULATION
  localparam HARD = 0, unused = SHARED;
`elsif RTLSTM_NO_MULTIPLIERS
  localparam HARD = 0;
`else
  localparam HARD = KIND == "dsp" && SHARED && 2 * A_BITS + B_BITS + 1 <= 18;
`endif
  generate
    if (HARD) begin : one
      rtlstm_ecp5_packed_pair #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES)) pair (
        .clk(clk), .a0(a0), .a1(a1), .b(b0), .product0(product0), .product1(product1), .carry1(carry1)
      );
    end else begin : two
      assign carry1 = 1'b0;
      rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) first (
        .clk(clk), .a(a0), .b(b0), .product(product0)
      );
      rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) second (
        .clk(clk), .a(a1), .b(b1), .product(product1)
      );
    end
  endgenerate
endmodule
