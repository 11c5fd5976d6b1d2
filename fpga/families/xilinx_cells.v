// Behavioural models of AMD Xilinx' DSP blocks as the primitives and synthesis use them: a product, with
// the pre-adder or not, and a sum with C or the cascade. Written from what is published of the cells. What
// the models do not know (a parameter's value, a mode) ends the simulation; outputs that they do not have
// are open.

// A register with enable and reset, or none; or two behind each other, of which the first has an enable of its own.
module dsp48_register #(
  parameter BITS = 1,
  parameter STAGES = 0
) (
  input clk, enable, reset,
  input [BITS-1:0] i,
  output [BITS-1:0] o,
  input first
);
  reg [BITS-1:0] early, held;
  // An open reset is low.
  always @(posedge clk)
    if (reset === 1'b1) begin
      early <= 0;
      held <= 0;
    end else begin
      if (first === 1'b1) early <= i;
      if (enable === 1'b1) held <= STAGES > 1 ? early : i;
    end
  assign o = STAGES ? held : i;
endmodule

// P = (A + D) B + Z, where Z is 0, PCIN, C or PCIN shifted by 17 bits.
module dsp48_datapath #(
  parameter FACTOR = 27,
  parameter ADDS = 0,
  parameter AREG = 0,
  parameter BREG = 0,
  parameter CREG = 0,
  parameter DREG = 0,
  parameter ADREG = 0,
  parameter MREG = 0,
  parameter PREG = 0
) (
  input clk,
  input [29:0] a,
  input [FACTOR-1:0] d,
  input [17:0] b,
  input [47:0] c, pcin,
  input [2:0] z,
  input cea1, ceb1, cea, ceb, cec, ced, cead, cem, cep, rsta, rstb, rstc, rstd, rstm, rstp,
  output [29:0] a_in,
  output [17:0] b_in,
  output [47:0] p
);
  wire [FACTOR-1:0] d_in, sum;
  wire [47:0] c_in;
  dsp48_register #(.BITS(30), .STAGES(AREG)) a_register (clk, cea, rsta, a, a_in, cea1);
  dsp48_register #(.BITS(18), .STAGES(BREG)) b_register (clk, ceb, rstb, b, b_in, ceb1);
  dsp48_register #(.BITS(48), .STAGES(CREG)) c_register (clk, cec, rstc, c, c_in, 1'b0);
  dsp48_register #(.BITS(FACTOR), .STAGES(DREG)) d_register (clk, ced, rstd, d, d_in, 1'b0);
  dsp48_register #(.BITS(FACTOR), .STAGES(ADREG)) ad_register (clk, cead, rstd, a_in[FACTOR-1:0] + d_in, sum, 1'b0);
  wire signed [FACTOR-1:0] x = ADDS ? sum : a_in[FACTOR-1:0];
  wire signed [17:0] y = b_in;
  wire signed [47:0] full = x * y;
  wire [47:0] product;
  dsp48_register #(.BITS(48), .STAGES(MREG)) m_register (clk, cem, rstm, full, product, 1'b0);
  wire [47:0] other = z == 3'b011 ? c_in : z == 3'b001 ? pcin : z == 3'b101 ? {{17{pcin[47]}}, pcin[47:17]} : 48'd0;
  dsp48_register #(.BITS(48), .STAGES(PREG)) p_register (clk, cep, rstp, product + other, p, 1'b0);
endmodule

module DSP48E1 #(
  parameter ACASCREG = 1,
  parameter ADREG = 1,
  parameter ALUMODEREG = 1,
  parameter AREG = 1,
  parameter AUTORESET_PATDET = "NO_RESET",
  parameter A_INPUT = "DIRECT",
  parameter BCASCREG = 1,
  parameter BREG = 1,
  parameter B_INPUT = "DIRECT",
  parameter CARRYINREG = 1,
  parameter CARRYINSELREG = 1,
  parameter CREG = 1,
  parameter DREG = 1,
  parameter INMODEREG = 1,
  parameter MREG = 1,
  parameter OPMODEREG = 1,
  parameter PREG = 1,
  parameter SEL_MASK = "MASK",
  parameter SEL_PATTERN = "PATTERN",
  parameter USE_MULT = "MULTIPLY",
  parameter USE_PATTERN_DETECT = "NO_PATDET",
  parameter USE_SIMD = "ONE48",
  parameter [47:0] MASK = 48'h3FFFFFFFFFFF,
  parameter [47:0] PATTERN = 0,
  parameter [3:0] IS_ALUMODE_INVERTED = 0,
  parameter [0:0] IS_CARRYIN_INVERTED = 0,
  parameter [0:0] IS_CLK_INVERTED = 0,
  parameter [4:0] IS_INMODE_INVERTED = 0,
  parameter [6:0] IS_OPMODE_INVERTED = 0,
  parameter USE_DPORT = "FALSE"
) (
  input CLK,
  input [29:0] A, ACIN,
  input [17:0] B, BCIN,
  input [47:0] C, PCIN,
  input [24:0] D,
  input [6:0] OPMODE,
  input [4:0] INMODE,
  input [3:0] ALUMODE,
  input [2:0] CARRYINSEL,
  input CARRYIN, CARRYCASCIN, MULTSIGNIN,
  input CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED, CEINMODE, CEM, CEP,
  input RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP,
  output [47:0] P, PCOUT,
  output [29:0] ACOUT,
  output [17:0] BCOUT,
  output [3:0] CARRYOUT,
  output CARRYCASCOUT, MULTSIGNOUT, OVERFLOW, UNDERFLOW, PATTERNDETECT, PATTERNBDETECT
);
  localparam ADDS = USE_DPORT == "TRUE";
  dsp48_datapath #(
    .FACTOR(25), .ADDS(ADDS), .AREG(AREG), .BREG(BREG), .CREG(CREG), .DREG(DREG), .ADREG(ADREG), .MREG(MREG),
    .PREG(PREG)
  ) datapath (
    .clk(CLK), .a(A_INPUT == "CASCADE" ? ACIN : A), .b(B_INPUT == "CASCADE" ? BCIN : B), .c(C), .d(D), .pcin(PCIN),
    .z(OPMODE[6:4]), .a_in(ACOUT), .b_in(BCOUT), .p(P),
    .cea1(CEA1), .ceb1(CEB1), .cea(CEA2), .ceb(CEB2), .cec(CEC), .ced(CED), .cead(CEAD), .cem(CEM), .cep(CEP),
    .rsta(RSTA), .rstb(RSTB), .rstc(RSTC), .rstd(RSTD), .rstm(RSTM), .rstp(RSTP)
  );
  assign PCOUT = P;

  task unsupported(input [8*24-1:0] what);
    begin
      $display("DSP48E1: %0s is set to what the simulation model does not know", what);
      $finish;
    end
  endtask

  initial begin
    if (A_INPUT != "DIRECT" && A_INPUT != "CASCADE") unsupported("A_INPUT");
    if (B_INPUT != "DIRECT" && B_INPUT != "CASCADE") unsupported("B_INPUT");
    if (ACASCREG != AREG || BCASCREG != BREG) unsupported("a cascade's register");
    if (AUTORESET_PATDET != "NO_RESET") unsupported("AUTORESET_PATDET");
    if (USE_MULT != "MULTIPLY") unsupported("USE_MULT");
    if (USE_PATTERN_DETECT != "NO_PATDET") unsupported("USE_PATTERN_DETECT");
    if (USE_SIMD != "ONE48") unsupported("USE_SIMD");
    if (AREG > 2) unsupported("AREG");
    if (BREG > 2) unsupported("BREG");
    if (USE_DPORT != "TRUE" && USE_DPORT != "FALSE") unsupported("USE_DPORT");
    if (ALUMODEREG || INMODEREG || OPMODEREG || CARRYINREG || CARRYINSELREG) unsupported("a control register");
    if ({IS_ALUMODE_INVERTED, IS_CARRYIN_INVERTED, IS_CLK_INVERTED, IS_INMODE_INVERTED, IS_OPMODE_INVERTED} != 0)
      unsupported("an inverted pin");
  end

  // The controls are constant: looked at on clock edges, they cost little.
  always @(posedge CLK) begin
    case (OPMODE)
      7'b000_01_01, 7'b001_01_01, 7'b011_01_01, 7'b101_01_01: ;
      default: unsupported("OPMODE");
    endcase
    if (INMODE !== (ADDS ? 5'b00100 : 5'b00000)) unsupported("INMODE");
    if (ALUMODE !== 4'b0000) unsupported("ALUMODE");
    if (CARRYIN !== 1'b0 || CARRYINSEL !== 3'b000) unsupported("CARRYIN");
  end
endmodule

module DSP48E2 #(
  parameter ACASCREG = 1,
  parameter ADREG = 1,
  parameter ALUMODEREG = 1,
  parameter AREG = 1,
  parameter AUTORESET_PATDET = "NO_RESET",
  parameter A_INPUT = "DIRECT",
  parameter BCASCREG = 1,
  parameter BREG = 1,
  parameter B_INPUT = "DIRECT",
  parameter CARRYINREG = 1,
  parameter CARRYINSELREG = 1,
  parameter CREG = 1,
  parameter DREG = 1,
  parameter INMODEREG = 1,
  parameter MREG = 1,
  parameter OPMODEREG = 1,
  parameter PREG = 1,
  parameter SEL_MASK = "MASK",
  parameter SEL_PATTERN = "PATTERN",
  parameter USE_MULT = "MULTIPLY",
  parameter USE_PATTERN_DETECT = "NO_PATDET",
  parameter USE_SIMD = "ONE48",
  parameter [47:0] MASK = 48'h3FFFFFFFFFFF,
  parameter [47:0] PATTERN = 0,
  parameter [3:0] IS_ALUMODE_INVERTED = 0,
  parameter [0:0] IS_CARRYIN_INVERTED = 0,
  parameter [0:0] IS_CLK_INVERTED = 0,
  parameter [4:0] IS_INMODE_INVERTED = 0,
  parameter [8:0] IS_OPMODE_INVERTED = 0,
  parameter AMULTSEL = "A",
  parameter BMULTSEL = "B",
  parameter PREADDINSEL = "A",
  parameter AUTORESET_PRIORITY = "RESET",
  parameter USE_WIDEXOR = "FALSE",
  parameter XORSIMD = "XOR24_48_96",
  parameter [47:0] RND = 0,
  parameter [0:0] IS_RSTALLCARRYIN_INVERTED = 0,
  parameter [0:0] IS_RSTALUMODE_INVERTED = 0,
  parameter [0:0] IS_RSTA_INVERTED = 0,
  parameter [0:0] IS_RSTB_INVERTED = 0,
  parameter [0:0] IS_RSTCTRL_INVERTED = 0,
  parameter [0:0] IS_RSTC_INVERTED = 0,
  parameter [0:0] IS_RSTD_INVERTED = 0,
  parameter [0:0] IS_RSTINMODE_INVERTED = 0,
  parameter [0:0] IS_RSTM_INVERTED = 0,
  parameter [0:0] IS_RSTP_INVERTED = 0
) (
  input CLK,
  input [29:0] A, ACIN,
  input [17:0] B, BCIN,
  input [47:0] C, PCIN,
  input [26:0] D,
  input [8:0] OPMODE,
  input [4:0] INMODE,
  input [3:0] ALUMODE,
  input [2:0] CARRYINSEL,
  input CARRYIN, CARRYCASCIN, MULTSIGNIN,
  input CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED, CEINMODE, CEM, CEP,
  input RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP,
  output [47:0] P, PCOUT,
  output [29:0] ACOUT,
  output [17:0] BCOUT,
  output [3:0] CARRYOUT,
  output [7:0] XOROUT,
  output CARRYCASCOUT, MULTSIGNOUT, OVERFLOW, UNDERFLOW, PATTERNDETECT, PATTERNBDETECT
);
  localparam ADDS = AMULTSEL == "AD";
  dsp48_datapath #(
    .FACTOR(27), .ADDS(ADDS), .AREG(AREG), .BREG(BREG), .CREG(CREG), .DREG(DREG), .ADREG(ADREG), .MREG(MREG),
    .PREG(PREG)
  ) datapath (
    .clk(CLK), .a(A_INPUT == "CASCADE" ? ACIN : A), .b(B_INPUT == "CASCADE" ? BCIN : B), .c(C), .d(D), .pcin(PCIN),
    .z(OPMODE[6:4]), .a_in(ACOUT), .b_in(BCOUT), .p(P),
    .cea1(CEA1), .ceb1(CEB1), .cea(CEA2), .ceb(CEB2), .cec(CEC), .ced(CED), .cead(CEAD), .cem(CEM), .cep(CEP),
    .rsta(RSTA), .rstb(RSTB), .rstc(RSTC), .rstd(RSTD), .rstm(RSTM), .rstp(RSTP)
  );
  assign PCOUT = P;

  task unsupported(input [8*24-1:0] what);
    begin
      $display("DSP48E2: %0s is set to what the simulation model does not know", what);
      $finish;
    end
  endtask

  initial begin
    if (A_INPUT != "DIRECT" && A_INPUT != "CASCADE") unsupported("A_INPUT");
    if (B_INPUT != "DIRECT" && B_INPUT != "CASCADE") unsupported("B_INPUT");
    if (ACASCREG != AREG || BCASCREG != BREG) unsupported("a cascade's register");
    if (AUTORESET_PATDET != "NO_RESET") unsupported("AUTORESET_PATDET");
    if (USE_MULT != "MULTIPLY") unsupported("USE_MULT");
    if (USE_PATTERN_DETECT != "NO_PATDET") unsupported("USE_PATTERN_DETECT");
    if (USE_SIMD != "ONE48") unsupported("USE_SIMD");
    if (AREG > 2) unsupported("AREG");
    if (BREG > 2) unsupported("BREG");
    if (AMULTSEL != "A" && AMULTSEL != "AD") unsupported("AMULTSEL");
    if (BMULTSEL != "B") unsupported("BMULTSEL");
    if (PREADDINSEL != "A") unsupported("PREADDINSEL");
    if (USE_WIDEXOR != "FALSE") unsupported("USE_WIDEXOR");
    if (ALUMODEREG || INMODEREG || OPMODEREG || CARRYINREG || CARRYINSELREG) unsupported("a control register");
    if ({IS_ALUMODE_INVERTED, IS_CARRYIN_INVERTED, IS_CLK_INVERTED, IS_INMODE_INVERTED, IS_OPMODE_INVERTED,
      IS_RSTALLCARRYIN_INVERTED, IS_RSTALUMODE_INVERTED, IS_RSTA_INVERTED, IS_RSTB_INVERTED,
      IS_RSTCTRL_INVERTED, IS_RSTC_INVERTED, IS_RSTD_INVERTED, IS_RSTINMODE_INVERTED,
      IS_RSTM_INVERTED, IS_RSTP_INVERTED} != 0)
      unsupported("an inverted pin");
  end

  // The controls are constant: looked at on clock edges, they cost little.
  always @(posedge CLK) begin
    case (OPMODE)
      9'b00_000_01_01, 9'b00_001_01_01, 9'b00_011_01_01, 9'b00_101_01_01: ;
      default: unsupported("OPMODE");
    endcase
    if (INMODE !== (ADDS ? 5'b00100 : 5'b00000)) unsupported("INMODE");
    if (ALUMODE !== 4'b0000) unsupported("ALUMODE");
    if (CARRYIN !== 1'b0 || CARRYINSEL !== 3'b000) unsupported("CARRYIN");
  end
endmodule

// UltraRAM: 4,096 words of 72 bits, of which port A writes whole ones and port B reads. A word that is read and
// written at the same edge reads as X. Contents start as X.
module URAM288_BASE #(
  parameter AUTO_SLEEP_LATENCY = 8,
  parameter AVG_CONS_INACTIVE_CYCLES = 10,
  parameter BWE_MODE_A = "PARITY_INTERLEAVED",
  parameter BWE_MODE_B = "PARITY_INTERLEAVED",
  parameter EN_AUTO_SLEEP_MODE = "FALSE",
  parameter EN_ECC_RD_A = "FALSE",
  parameter EN_ECC_RD_B = "FALSE",
  parameter EN_ECC_WR_A = "FALSE",
  parameter EN_ECC_WR_B = "FALSE",
  parameter IREG_PRE_A = "FALSE",
  parameter IREG_PRE_B = "FALSE",
  parameter [0:0] IS_CLK_INVERTED = 0,
  parameter [0:0] IS_EN_A_INVERTED = 0,
  parameter [0:0] IS_EN_B_INVERTED = 0,
  parameter [0:0] IS_RDB_WR_A_INVERTED = 0,
  parameter [0:0] IS_RDB_WR_B_INVERTED = 0,
  parameter [0:0] IS_RST_A_INVERTED = 0,
  parameter [0:0] IS_RST_B_INVERTED = 0,
  parameter OREG_A = "FALSE",
  parameter OREG_B = "FALSE",
  parameter OREG_ECC_A = "FALSE",
  parameter OREG_ECC_B = "FALSE",
  parameter RST_MODE_A = "SYNC",
  parameter RST_MODE_B = "SYNC",
  parameter USE_EXT_CE_A = "FALSE",
  parameter USE_EXT_CE_B = "FALSE"
) (
  input CLK, SLEEP,
  input [22:0] ADDR_A, ADDR_B,
  input [71:0] DIN_A, DIN_B,
  input [8:0] BWE_A, BWE_B,
  input EN_A, EN_B, RDB_WR_A, RDB_WR_B, RST_A, RST_B,
  input OREG_CE_A, OREG_CE_B, OREG_ECC_CE_A, OREG_ECC_CE_B,
  input INJECT_DBITERR_A, INJECT_DBITERR_B, INJECT_SBITERR_A, INJECT_SBITERR_B,
  output [71:0] DOUT_A, DOUT_B,
  output DBITERR_A, DBITERR_B, SBITERR_A, SBITERR_B
);
  reg [71:0] cells [0:4095];
  reg [71:0] word, later;
  always @(posedge CLK) begin
    if (EN_A) cells[ADDR_A[11:0]] <= DIN_A;
    if (EN_B) word <= EN_A && ADDR_A[11:0] == ADDR_B[11:0] ? {72{1'bx}} : cells[ADDR_B[11:0]];
    later <= word;
  end
  assign DOUT_B = OREG_B == "TRUE" ? later : word;

  task unsupported(input [8*24-1:0] what);
    begin
      $display("URAM288_BASE: %0s is set to what the simulation model does not know", what);
      $finish;
    end
  endtask

  initial begin
    if (OREG_B != "TRUE" && OREG_B != "FALSE") unsupported("OREG_B");
    if (EN_AUTO_SLEEP_MODE != "FALSE") unsupported("EN_AUTO_SLEEP_MODE");
    if (EN_ECC_RD_B != "FALSE" || EN_ECC_WR_A != "FALSE" || OREG_ECC_B != "FALSE") unsupported("ECC");
    if (IREG_PRE_A != "FALSE" || IREG_PRE_B != "FALSE") unsupported("IREG_PRE");
    if (USE_EXT_CE_B != "FALSE") unsupported("USE_EXT_CE_B");
    if ({IS_CLK_INVERTED, IS_EN_A_INVERTED, IS_EN_B_INVERTED, IS_RDB_WR_A_INVERTED, IS_RDB_WR_B_INVERTED,
      IS_RST_A_INVERTED, IS_RST_B_INVERTED} != 0) unsupported("an inverted pin");
  end

  always @(posedge CLK) begin
    if (BWE_A !== 9'h1ff || RDB_WR_A !== 1'b1) unsupported("a read of port A");
    if (RDB_WR_B !== 1'b0) unsupported("a write of port B");
    if (EN_B !== 1'b1) unsupported("EN_B");
    if (ADDR_A[22:12] != 0 || ADDR_B[22:12] != 0) unsupported("an upper address bit");
    if (RST_B !== 1'b0 || SLEEP !== 1'b0) unsupported("RST_B or SLEEP");
  end
endmodule
