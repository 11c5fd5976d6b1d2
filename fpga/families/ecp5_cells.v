// Behavioural models of the ECP5 cells that the primitives and synthesis use and that have no
// model elsewhere: block RAM, multiplier, flip-flop. Written from what is published of the cells. What the
// models do not know (a parameter's value, a pin in use) ends the simulation.

// True dual port with both ports of one width (18, 9, 4, 2 or 1), or with a width of 36 port A
// writes and port B reads. A word that is written by the other port at the same edge reads as X.
// Contents without INITVAL are X.
module DP16KD #(
  parameter DATA_WIDTH_A = 18,
  parameter DATA_WIDTH_B = 18,
  parameter REGMODE_A = "NOREG",
  parameter REGMODE_B = "NOREG",
  parameter RESETMODE = "SYNC",
  parameter ASYNC_RESET_RELEASE = "SYNC",
  parameter CSDECODE_A = "0b000",
  parameter CSDECODE_B = "0b000",
  parameter WRITEMODE_A = "NORMAL",
  parameter WRITEMODE_B = "NORMAL",
  parameter CLKAMUX = "CLKA",
  parameter CLKBMUX = "CLKB",
  parameter GSR = "ENABLED",
  parameter INIT_DATA = "STATIC",
  parameter WID = 0,
  parameter [319:0] INITVAL_00 = {320{1'bx}},
  parameter [319:0] INITVAL_01 = {320{1'bx}},
  parameter [319:0] INITVAL_02 = {320{1'bx}},
  parameter [319:0] INITVAL_03 = {320{1'bx}},
  parameter [319:0] INITVAL_04 = {320{1'bx}},
  parameter [319:0] INITVAL_05 = {320{1'bx}},
  parameter [319:0] INITVAL_06 = {320{1'bx}},
  parameter [319:0] INITVAL_07 = {320{1'bx}},
  parameter [319:0] INITVAL_08 = {320{1'bx}},
  parameter [319:0] INITVAL_09 = {320{1'bx}},
  parameter [319:0] INITVAL_0A = {320{1'bx}},
  parameter [319:0] INITVAL_0B = {320{1'bx}},
  parameter [319:0] INITVAL_0C = {320{1'bx}},
  parameter [319:0] INITVAL_0D = {320{1'bx}},
  parameter [319:0] INITVAL_0E = {320{1'bx}},
  parameter [319:0] INITVAL_0F = {320{1'bx}},
  parameter [319:0] INITVAL_10 = {320{1'bx}},
  parameter [319:0] INITVAL_11 = {320{1'bx}},
  parameter [319:0] INITVAL_12 = {320{1'bx}},
  parameter [319:0] INITVAL_13 = {320{1'bx}},
  parameter [319:0] INITVAL_14 = {320{1'bx}},
  parameter [319:0] INITVAL_15 = {320{1'bx}},
  parameter [319:0] INITVAL_16 = {320{1'bx}},
  parameter [319:0] INITVAL_17 = {320{1'bx}},
  parameter [319:0] INITVAL_18 = {320{1'bx}},
  parameter [319:0] INITVAL_19 = {320{1'bx}},
  parameter [319:0] INITVAL_1A = {320{1'bx}},
  parameter [319:0] INITVAL_1B = {320{1'bx}},
  parameter [319:0] INITVAL_1C = {320{1'bx}},
  parameter [319:0] INITVAL_1D = {320{1'bx}},
  parameter [319:0] INITVAL_1E = {320{1'bx}},
  parameter [319:0] INITVAL_1F = {320{1'bx}},
  parameter [319:0] INITVAL_20 = {320{1'bx}},
  parameter [319:0] INITVAL_21 = {320{1'bx}},
  parameter [319:0] INITVAL_22 = {320{1'bx}},
  parameter [319:0] INITVAL_23 = {320{1'bx}},
  parameter [319:0] INITVAL_24 = {320{1'bx}},
  parameter [319:0] INITVAL_25 = {320{1'bx}},
  parameter [319:0] INITVAL_26 = {320{1'bx}},
  parameter [319:0] INITVAL_27 = {320{1'bx}},
  parameter [319:0] INITVAL_28 = {320{1'bx}},
  parameter [319:0] INITVAL_29 = {320{1'bx}},
  parameter [319:0] INITVAL_2A = {320{1'bx}},
  parameter [319:0] INITVAL_2B = {320{1'bx}},
  parameter [319:0] INITVAL_2C = {320{1'bx}},
  parameter [319:0] INITVAL_2D = {320{1'bx}},
  parameter [319:0] INITVAL_2E = {320{1'bx}},
  parameter [319:0] INITVAL_2F = {320{1'bx}},
  parameter [319:0] INITVAL_30 = {320{1'bx}},
  parameter [319:0] INITVAL_31 = {320{1'bx}},
  parameter [319:0] INITVAL_32 = {320{1'bx}},
  parameter [319:0] INITVAL_33 = {320{1'bx}},
  parameter [319:0] INITVAL_34 = {320{1'bx}},
  parameter [319:0] INITVAL_35 = {320{1'bx}},
  parameter [319:0] INITVAL_36 = {320{1'bx}},
  parameter [319:0] INITVAL_37 = {320{1'bx}},
  parameter [319:0] INITVAL_38 = {320{1'bx}},
  parameter [319:0] INITVAL_39 = {320{1'bx}},
  parameter [319:0] INITVAL_3A = {320{1'bx}},
  parameter [319:0] INITVAL_3B = {320{1'bx}},
  parameter [319:0] INITVAL_3C = {320{1'bx}},
  parameter [319:0] INITVAL_3D = {320{1'bx}},
  parameter [319:0] INITVAL_3E = {320{1'bx}},
  parameter [319:0] INITVAL_3F = {320{1'bx}}
) (
  input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2,
    DIA1, DIA0,
  input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
  input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
  output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2,
    DOA1, DOA0,
  input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2,
    DIB1, DIB0,
  input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
  input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
  output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2,
    DOB1, DOB0
);
  localparam BITS = DATA_WIDTH_A;
  localparam WIDE = BITS == 36;
  localparam SHIFT = WIDE ? 5 : BITS == 18 ? 4 : BITS == 9 ? 3 : BITS == 4 ? 2 : BITS == 2 ? 1 : 0;
  localparam WORDS = 1 << (14 - SHIFT);
  localparam LANES = BITS < 18 ? 1 : BITS / 9;
  localparam LANE = BITS / LANES;

  // Pins are looked at on clock edges only: that simulates much faster than nets of them all.
  reg [BITS-1:0] cells [0:WORDS-1];
  integer i, j;
  generate
    if (WIDE) begin : simple_dual_port
      reg [13:0] ada, adb;
      reg [35:0] data, word, later;
      always @(posedge CLKA)
        if (CEA) begin
          ada = {
            ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0
          };
          data = {
            DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4,
            DIB3, DIB2, DIB1, DIB0,
            DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4,
            DIA3, DIA2, DIA1, DIA0
          };
          for (i = 0; i < 4; i = i + 1)
            if (ada[i]) cells[ada[13:5]][i*9 +: 9] <= data[i*9 +: 9];
        end
      always @(posedge CLKB) begin
        if (CEB) begin
          adb = {
            ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0
          };
          word <= CEA && {ADA3, ADA2, ADA1, ADA0} != 0 && adb[13:5] == {
            ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5
          } ? {36{1'bx}} : cells[adb[13:5]];
        end
        if (OCEB) later <= word;
      end
      assign {
      DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3,
      DOB2, DOB1, DOB0,
      DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3,
      DOA2, DOA1, DOA0
      } = REGMODE_B == "OUTREG" ? later : word;
    end else begin : dual_port
      reg [13:0] ada, adb, ada_other, adb_other;
      reg [17:0] dia, dib, word_a, word_b, later_a, later_b;
      always @(posedge CLKA) begin
        ada = {
            ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0
        };
        if (CEA && WEA) begin
          dia = {
            DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4,
            DIA3, DIA2, DIA1, DIA0
          };
          for (i = 0; i < LANES; i = i + 1)
            if (LANES == 1 || ada[i]) cells[ada[13:SHIFT]][i*LANE +: LANE] <= dia[i*LANE +: LANE];
        end else if (CEA) begin
          adb_other = {
            ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0
          };
          word_a <= CEB && WEB && (BITS < 18 || adb_other[1:0] != 0) && ada[13:SHIFT] == adb_other[13:SHIFT]
            ? {BITS{1'bx}} : cells[ada[13:SHIFT]];
        end
        if (OCEA) later_a <= word_a;
      end
      always @(posedge CLKB) begin
        adb = {
            ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0
        };
        if (CEB && WEB) begin
          dib = {
            DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4,
            DIB3, DIB2, DIB1, DIB0
          };
          for (j = 0; j < LANES; j = j + 1)
            if (LANES == 1 || adb[j]) cells[adb[13:SHIFT]][j*LANE +: LANE] <= dib[j*LANE +: LANE];
        end else if (CEB) begin
          ada_other = {
            ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0
          };
          word_b <= CEA && WEA && (BITS < 18 || ada_other[1:0] != 0) && adb[13:SHIFT] == ada_other[13:SHIFT]
            ? {BITS{1'bx}} : cells[adb[13:SHIFT]];
        end
        if (OCEB) later_b <= word_b;
      end
      assign {
      DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3,
      DOA2, DOA1, DOA0
      } = REGMODE_A == "OUTREG" ? later_a : word_a;
      assign {
      DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3,
      DOB2, DOB1, DOB0
      } = REGMODE_B == "OUTREG" ? later_b : word_b;
    end
  endgenerate

  // Initial contents: 64 rows of 16 words of 18 bits, each padded to 20; bit 8 of every 9 is the
  // parity bit, which the widths below 9 do not reach.
  wire [20479:0] given = {
    INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38,
    INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30,
    INITVAL_2F, INITVAL_2E, INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28,
    INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20,
    INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18,
    INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10,
    INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A, INITVAL_09, INITVAL_08,
    INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01, INITVAL_00
  };
  integer word, bit_;
  initial
    if (given !== {20480{1'bx}}) begin
      for (word = 0; word < WORDS; word = word + 1)
        for (bit_ = 0; bit_ < BITS; bit_ = bit_ + 1)
          cells[word][bit_] = BITS >= 9
            ? given[(word*(BITS/9)+bit_/9)/2*20 + (word*(BITS/9)+bit_/9)%2*9 + bit_%9]
            : given[(word*BITS+bit_)/16*20 + (word*BITS+bit_)%16/8*9 + (word*BITS+bit_)%8];
    end

  task unsupported(input [8*24-1:0] what);
    begin
      $display("DP16KD: %0s is set to what the simulation model does not know", what);
      $finish;
    end
  endtask

  initial begin
    if (DATA_WIDTH_A != 36 && DATA_WIDTH_A != 18 && DATA_WIDTH_A != 9 && DATA_WIDTH_A != 4
        && DATA_WIDTH_A != 2 && DATA_WIDTH_A != 1) unsupported("DATA_WIDTH_A");
    if (REGMODE_A != "NOREG" && REGMODE_A != "OUTREG") unsupported("REGMODE_A");
    if (REGMODE_B != "NOREG" && REGMODE_B != "OUTREG") unsupported("REGMODE_B");
    if (WIDE && REGMODE_A != REGMODE_B) unsupported("REGMODE_A");
    if (CSDECODE_A != "0b000") unsupported("CSDECODE_A");
    if (CSDECODE_B != "0b000") unsupported("CSDECODE_B");
    if (CLKAMUX != "CLKA") unsupported("CLKAMUX");
    if (CLKBMUX != "CLKB") unsupported("CLKBMUX");
    if (INIT_DATA != "STATIC") unsupported("INIT_DATA");
  end
  // Of a memory that nothing writes, Yosys leaves the second port and the mode of writes as they come.
  always @(posedge CLKA) if (CEA && WEA && WRITEMODE_A != "NORMAL") unsupported("WRITEMODE_A");
  always @(posedge CLKB) if (CEB && WEB && WRITEMODE_B != "NORMAL") unsupported("WRITEMODE_B");
  always @(posedge CLKB) if (CEB && DATA_WIDTH_B != DATA_WIDTH_A) unsupported("DATA_WIDTH_B");
  always @(RSTA or RSTB) if (RSTA === 1'b1 || RSTB === 1'b1) unsupported("RSTA or RSTB");
  always @(CSA0 or CSA1 or CSA2) if (CSA0 === 1'b1 || CSA1 === 1'b1 || CSA2 === 1'b1) unsupported("CSA");
  always @(CSB0 or CSB1 or CSB2) if (CSB0 === 1'b1 || CSB1 === 1'b1 || CSB2 === 1'b1) unsupported("CSB");
endmodule

// The flip-flop as the primitives use it: on CLK's rising edge, with neither enable nor reset.
module TRELLIS_FF #(
  parameter GSR = "ENABLED",
  parameter CEMUX = "1",
  parameter CLKMUX = "CLK",
  parameter LSRMUX = "LSR",
  parameter REGSET = "RESET",
  parameter SRMODE = "LSR_OVER_CE"
) (
  input CLK, CE, LSR, DI,
  output reg Q
);
  always @(posedge CLK) Q <= DI;

  task unsupported(input [8*24-1:0] what);
    begin
      $display("TRELLIS_FF: %0s is set to what the simulation model does not know", what);
      $finish;
    end
  endtask

  initial begin
    if (GSR != "DISABLED") unsupported("GSR");
    if (CEMUX != "1") unsupported("CEMUX");
    if (CLKMUX != "CLK") unsupported("CLKMUX");
    if (LSRMUX != "LSR" || REGSET != "RESET" || SRMODE != "LSR_OVER_CE") unsupported("LSR");
  end
  always @(CE or LSR) if (CE === 1'b0 || LSR === 1'b1) unsupported("CE or LSR");
endmodule

// Two bits of a carry chain.
module CCU2C #(
  parameter [15:0] INIT0 = 16'h0000,
  parameter [15:0] INIT1 = 16'h0000,
  parameter INJECT1_0 = "YES",
  parameter INJECT1_1 = "YES"
) (
  input CIN, A0, B0, C0, D0, A1, B1, C1, D1,
  output S0, S1, COUT
);
  // The low quarter of each table makes the carry where the table itself gives 0.
  wire table0 = INIT0[{D0, C0, B0, A0}];
  wire table1 = INIT1[{D1, C1, B1, A1}];
  wire carry = table0 ? CIN : INIT0[{B0, A0}];
  assign S0 = table0 ^ CIN;
  assign S1 = table1 ^ carry;
  assign COUT = table1 ? carry : INIT1[{B1, A1}];
  initial
    if (INJECT1_0 != "NO" || INJECT1_1 != "NO") begin
      $display("CCU2C: INJECT1 is set to what the simulation model does not know");
      $finish;
    end
endmodule

// Simple dual port, 512 words of 36 bits. The halves of DO are the other way round than those of
// DI: DI[17:0] comes out at DO[35:18].
module PDPW16KD #(
  parameter DATA_WIDTH_W = 36,
  parameter DATA_WIDTH_R = 36,
  parameter REGMODE = "NOREG",
  parameter RESETMODE = "SYNC",
  parameter ASYNC_RESET_RELEASE = "SYNC",
  parameter CSDECODE_W = "0b000",
  parameter CSDECODE_R = "0b000",
  parameter CLKWMUX = "CLKW",
  parameter CLKRMUX = "CLKR",
  parameter GSR = "ENABLED"
) (
  input DI35, DI34, DI33, DI32, DI31, DI30, DI29, DI28, DI27, DI26, DI25, DI24, DI23, DI22, DI21, DI20, DI19,
    DI18, DI17, DI16, DI15, DI14, DI13, DI12, DI11, DI10, DI9, DI8, DI7, DI6, DI5, DI4, DI3, DI2, DI1, DI0,
  input ADW8, ADW7, ADW6, ADW5, ADW4, ADW3, ADW2, ADW1, ADW0,
  input BE3, BE2, BE1, BE0,
  input CEW, CLKW, CSW2, CSW1, CSW0,
  input ADR13, ADR12, ADR11, ADR10, ADR9, ADR8, ADR7, ADR6, ADR5, ADR4, ADR3, ADR2, ADR1, ADR0,
  input CER, OCER, CLKR, CSR2, CSR1, CSR0, RST,
  output DO35, DO34, DO33, DO32, DO31, DO30, DO29, DO28, DO27, DO26, DO25, DO24, DO23, DO22, DO21, DO20, DO19,
    DO18, DO17, DO16, DO15, DO14, DO13, DO12, DO11, DO10, DO9, DO8, DO7, DO6, DO5, DO4, DO3, DO2, DO1, DO0
);
  wire [8:0] write_row = {ADW8, ADW7, ADW6, ADW5, ADW4, ADW3, ADW2, ADW1, ADW0};
  wire [8:0] read_row = {ADR13, ADR12, ADR11, ADR10, ADR9, ADR8, ADR7, ADR6, ADR5};
  wire [3:0] write = CEW ? {BE3, BE2, BE1, BE0} : 4'b0000;
  wire [35:0] data = {
    DI35, DI34, DI33, DI32, DI31, DI30, DI29, DI28, DI27, DI26, DI25, DI24, DI23, DI22, DI21, DI20, DI19,
    DI18, DI17, DI16, DI15, DI14, DI13, DI12, DI11, DI10, DI9, DI8, DI7, DI6, DI5, DI4, DI3, DI2, DI1, DI0
  };
  reg [35:0] cells [0:511];
  reg [35:0] word, later;
  integer i;
  always @(posedge CLKW)
    for (i = 0; i < 4; i = i + 1)
      if (write[i]) cells[write_row][i*9 +: 9] <= data[i*9 +: 9];
  always @(posedge CLKR) begin
    if (CER) word <= write != 0 && write_row == read_row ? {36{1'bx}} : cells[read_row];
    if (OCER) later <= word;
  end
  wire [35:0] out = REGMODE == "OUTREG" ? later : word;
  assign {
    DO35, DO34, DO33, DO32, DO31, DO30, DO29, DO28, DO27, DO26, DO25, DO24, DO23, DO22, DO21, DO20, DO19,
    DO18, DO17, DO16, DO15, DO14, DO13, DO12, DO11, DO10, DO9, DO8, DO7, DO6, DO5, DO4, DO3, DO2, DO1, DO0
  } = {out[17:0], out[35:18]};

  task unsupported(input [8*24-1:0] what);
    begin
      $display("PDPW16KD: %0s is set to what the simulation model does not know", what);
      $finish;
    end
  endtask

  initial begin
    if (DATA_WIDTH_W != 36) unsupported("DATA_WIDTH_W");
    if (DATA_WIDTH_R != 36) unsupported("DATA_WIDTH_R");
    if (REGMODE != "NOREG" && REGMODE != "OUTREG") unsupported("REGMODE");
    if (RESETMODE != "SYNC") unsupported("RESETMODE");
    if (CSDECODE_W != "0b000") unsupported("CSDECODE_W");
    if (CSDECODE_R != "0b000") unsupported("CSDECODE_R");
    if (CLKWMUX != "CLKW") unsupported("CLKWMUX");
    if (CLKRMUX != "CLKR") unsupported("CLKRMUX");
  end
  always @(RST or CSR0 or CSR1 or CSR2)
    if (RST === 1'b1 || CSR0 === 1'b1 || CSR1 === 1'b1 || CSR2 === 1'b1) unsupported("RST or CSR");
  always @(CSW0 or CSW1 or CSW2) if (CSW0 === 1'b1 || CSW1 === 1'b1 || CSW2 === 1'b1) unsupported("CSW");
endmodule

// 18 x 18 multiplier with optional registers at the inputs, inside and at the output, all on CLK0
// and CE0. No reset, no cascades, no operand C.
module MULT18X18D #(
  parameter REG_INPUTA_CLK = "NONE",
  parameter REG_INPUTA_CE = "CE0",
  parameter REG_INPUTA_RST = "RST0",
  parameter REG_INPUTB_CLK = "NONE",
  parameter REG_INPUTB_CE = "CE0",
  parameter REG_INPUTB_RST = "RST0",
  parameter REG_INPUTC_CLK = "NONE",
  parameter REG_INPUTC_CE = "CE0",
  parameter REG_INPUTC_RST = "RST0",
  parameter REG_PIPELINE_CLK = "NONE",
  parameter REG_PIPELINE_CE = "CE0",
  parameter REG_PIPELINE_RST = "RST0",
  parameter REG_OUTPUT_CLK = "NONE",
  parameter REG_OUTPUT_CE = "CE0",
  parameter REG_OUTPUT_RST = "RST0",
  parameter CLK0_DIV = "ENABLED",
  parameter CLK1_DIV = "ENABLED",
  parameter CLK2_DIV = "ENABLED",
  parameter CLK3_DIV = "ENABLED",
  parameter HIGHSPEED_CLK = "NONE",
  parameter GSR = "ENABLED",
  parameter CAS_MATCH_REG = "FALSE",
  parameter SOURCEB_MODE = "B_SHIFT",
  parameter MULT_BYPASS = "DISABLED",
  parameter RESETMODE = "SYNC"
) (
  input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
  input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
  input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
  input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
  input CLK3, CLK2, CLK1, CLK0, CE3, CE2, CE1, CE0, RST3, RST2, RST1, RST0,
  input SRIA17, SRIA16, SRIA15, SRIA14, SRIA13, SRIA12, SRIA11, SRIA10, SRIA9, SRIA8, SRIA7, SRIA6, SRIA5,
    SRIA4, SRIA3, SRIA2, SRIA1, SRIA0,
  input SRIB17, SRIB16, SRIB15, SRIB14, SRIB13, SRIB12, SRIB11, SRIB10, SRIB9, SRIB8, SRIB7, SRIB6, SRIB5,
    SRIB4, SRIB3, SRIB2, SRIB1, SRIB0,
  output SROA17, SROA16, SROA15, SROA14, SROA13, SROA12, SROA11, SROA10, SROA9, SROA8, SROA7, SROA6, SROA5,
    SROA4, SROA3, SROA2, SROA1, SROA0,
  output SROB17, SROB16, SROB15, SROB14, SROB13, SROB12, SROB11, SROB10, SROB9, SROB8, SROB7, SROB6, SROB5,
    SROB4, SROB3, SROB2, SROB1, SROB0,
  output ROA17, ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5, ROA4, ROA3, ROA2,
    ROA1, ROA0,
  output ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5, ROB4, ROB3, ROB2,
    ROB1, ROB0,
  output ROC17, ROC16, ROC15, ROC14, ROC13, ROC12, ROC11, ROC10, ROC9, ROC8, ROC7, ROC6, ROC5, ROC4, ROC3, ROC2,
    ROC1, ROC0,
  output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15,
    P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0,
  output SIGNEDP
);
  // Operands carry their sign or a zero as a 19th bit.
  wire signed [18:0] a, b;
  wire signed [35:0] inner, result;
  generate
    if (REG_INPUTA_CLK == "CLK0") begin : input_a
      reg signed [18:0] later;
      always @(posedge CLK0)
        if (CE0) later <= {
          SIGNEDA & A17,
          A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0
        };
      assign a = later;
    end else begin : input_a
      assign a = {
        SIGNEDA & A17,
        A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0
      };
    end
    if (REG_INPUTB_CLK == "CLK0") begin : input_b
      reg signed [18:0] later;
      always @(posedge CLK0)
        if (CE0) later <= {
          SIGNEDB & B17,
          B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0
        };
      assign b = later;
    end else begin : input_b
      assign b = {
        SIGNEDB & B17,
        B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0
      };
    end
    if (REG_PIPELINE_CLK == "CLK0") begin : pipeline
      reg signed [35:0] later;
      always @(posedge CLK0) if (CE0) later <= a * b;
      assign inner = later;
    end else begin : pipeline
      assign inner = a * b;
    end
    if (REG_OUTPUT_CLK == "CLK0") begin : last
      reg signed [35:0] later;
      always @(posedge CLK0) if (CE0) later <= inner;
      assign result = later;
    end else begin : last
      assign result = inner;
    end
  endgenerate
  assign {
    P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15,
    P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
  } = result;

  task unsupported(input [8*24-1:0] what);
    begin
      $display("MULT18X18D: %0s is set to what the simulation model does not know", what);
      $finish;
    end
  endtask

  initial begin
    if (REG_INPUTA_CLK != "NONE" && REG_INPUTA_CLK != "CLK0") unsupported("REG_INPUTA_CLK");
    if (REG_INPUTB_CLK != "NONE" && REG_INPUTB_CLK != "CLK0") unsupported("REG_INPUTB_CLK");
    if (REG_INPUTC_CLK != "NONE") unsupported("REG_INPUTC_CLK");
    if (REG_PIPELINE_CLK != "NONE" && REG_PIPELINE_CLK != "CLK0") unsupported("REG_PIPELINE_CLK");
    if (REG_OUTPUT_CLK != "NONE" && REG_OUTPUT_CLK != "CLK0") unsupported("REG_OUTPUT_CLK");
    if (REG_INPUTA_CE != "CE0" || REG_INPUTA_RST != "RST0") unsupported("REG_INPUTA");
    if (REG_INPUTB_CE != "CE0" || REG_INPUTB_RST != "RST0") unsupported("REG_INPUTB");
    if (REG_PIPELINE_CE != "CE0" || REG_PIPELINE_RST != "RST0") unsupported("REG_PIPELINE");
    if (REG_OUTPUT_CE != "CE0" || REG_OUTPUT_RST != "RST0") unsupported("REG_OUTPUT");
    if (CLK0_DIV != "ENABLED") unsupported("CLK0_DIV");
    if (HIGHSPEED_CLK != "NONE") unsupported("HIGHSPEED_CLK");
    if (CAS_MATCH_REG != "FALSE") unsupported("CAS_MATCH_REG");
    if (SOURCEB_MODE != "B_SHIFT") unsupported("SOURCEB_MODE");
    if (MULT_BYPASS != "DISABLED") unsupported("MULT_BYPASS");
    if (RESETMODE != "SYNC") unsupported("RESETMODE");
  end
  localparam CLOCKED = REG_INPUTA_CLK != "NONE" || REG_INPUTB_CLK != "NONE" || REG_PIPELINE_CLK != "NONE"
    || REG_OUTPUT_CLK != "NONE";
  always @(RST0) if (CLOCKED && RST0 === 1'b1) unsupported("RST0");
  always @(SOURCEA or SOURCEB) if (SOURCEA === 1'b1 || SOURCEB === 1'b1) unsupported("SOURCEA or SOURCEB");
endmodule
