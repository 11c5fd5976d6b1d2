
// The DSP block of AMD Xilinx' UltraScale and UltraScale+, a 27 x 18 multiplier with a pre-adder and an adder, for the
// primitives of xilinx.v. RTLSTM_FACTOR are the bits of its wider factor.
`define RTLSTM_FACTOR 27

// AMULTSEL says whether d is added to a; the value must be a literal, because a choice between two strings of
// unlike lengths pads one of them.
module rtlstm_dsp48_cell #(
  parameter AMULTSEL = "A",
  parameter A_INPUTS = 0,
  parameter B_INPUTS = 0,
  parameter SUM = 0,
  parameter PIPELINE = 0,
  parameter [8:0] OPMODE = 9'b00_000_01_01
) (
  input clk,
  input [26:0] a,
  input [26:0] d,
  input [17:0] b,
  input [47:0] c,
  input [47:0] pcin,
  output [47:0] p,
  output [47:0] pcout
);
  localparam [0:0] A1 = A_INPUTS > 1, A2 = A_INPUTS > 0, B1 = B_INPUTS > 1, B2 = B_INPUTS > 0;
  localparam [0:0] AD = SUM, MIDDLE = PIPELINE;
  DSP48E2 #(
    .A_INPUT("DIRECT"),
    .B_INPUT("DIRECT"),
    .AMULTSEL(AMULTSEL),
    .BMULTSEL("B"),
    .PREADDINSEL("A"),
    .USE_MULT("MULTIPLY"),
    .USE_SIMD("ONE48"),
    .USE_PATTERN_DETECT("NO_PATDET"),
    .AREG(A_INPUTS),
    .ACASCREG(A_INPUTS),
    .BREG(B_INPUTS),
    .BCASCREG(B_INPUTS),
    .DREG(A_INPUTS > 0 ? 1 : 0),
    .ADREG(SUM),
    .CREG(0),
    .MREG(PIPELINE),
    .PREG(1),
    .INMODEREG(0),
    .OPMODEREG(0),
    .ALUMODEREG(0),
    .CARRYINREG(0),
    .CARRYINSELREG(0)
  ) block (
    .CLK(clk),
    // The sign in all of A: tools that replace the block by a wider one multiply more of its bits.
    .A({{3{a[26]}}, a}), .B(b), .C(c), .D(d), .P(p), .PCOUT(pcout),
    .INMODE(AMULTSEL == "AD" ? 5'b00100 : 5'b00000), .OPMODE(OPMODE), .ALUMODE(4'b0000),
    .CARRYIN(1'b0), .CARRYINSEL(3'b000),
    .CEA1(A1), .CEA2(A2), .CEB1(B1), .CEB2(B2), .CED(A2), .CEAD(AD), .CEC(1'b0), .CEM(MIDDLE), .CEP(1'b1),
    .CEINMODE(1'b0), .CECTRL(1'b0), .CEALUMODE(1'b0), .CECARRYIN(1'b0),
    .RSTA(1'b0), .RSTB(1'b0), .RSTC(1'b0), .RSTD(1'b0), .RSTM(1'b0), .RSTP(1'b0),
    .RSTINMODE(1'b0), .RSTCTRL(1'b0), .RSTALUMODE(1'b0), .RSTALLCARRYIN(1'b0),
    .ACIN(30'd0), .BCIN(18'd0), .PCIN(pcin), .CARRYCASCIN(1'b0), .MULTSIGNIN(1'b0)
  );
endmodule

// p = (a + d) b + c if ADDS is set, else a b; in a chain, what another block gives takes the place of c. INPUTS
// registers (0 to 2) are before the multiplier, of the pre-adder's the second behind it. One is behind the
// multiplier if PIPELINE is set, and one at the output.
module rtlstm_dsp48 #(
  parameter ADDS = 0,
  parameter CHAINED = 0,
  parameter INPUTS = 0,
  parameter PIPELINE = 0
) (
  input clk,
  input [26:0] a,
  input [26:0] d,
  input [17:0] b,
  input [47:0] c,
  input [47:0] pcin,
  output [47:0] p,
  output [47:0] pcout
);
  generate
    if (ADDS) begin : form
      rtlstm_dsp48_cell #(
        .AMULTSEL("AD"), .A_INPUTS(INPUTS > 0 ? 1 : 0), .B_INPUTS(INPUTS), .SUM(INPUTS > 1 ? 1 : 0),
        .PIPELINE(PIPELINE), .OPMODE(CHAINED ? 9'b00_001_01_01 : 9'b00_011_01_01)
      ) block (.clk(clk), .a(a), .d(d), .b(b), .c(c), .pcin(pcin), .p(p), .pcout(pcout));
    end else begin : form
      rtlstm_dsp48_cell #(
        .AMULTSEL("A"), .A_INPUTS(INPUTS), .B_INPUTS(INPUTS), .PIPELINE(PIPELINE),
        .OPMODE(CHAINED ? 9'b00_001_01_01 : 9'b00_000_01_01)
      ) block (.clk(clk), .a(a), .d(d), .b(b), .c(c), .pcin(pcin), .p(p), .pcout(pcout));
    end
  endgenerate
endmodule
