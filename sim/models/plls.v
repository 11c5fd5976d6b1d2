// PLLs for the simulated board. Their clock comes from the simulation's harness, which reads the ratio
// that the cell's parameters make of the clock at its input.

// Locks after 16 edges of the source. The harness moves the oscillator `multiply` cycles for every
// `divide` cycles of the source.
module rtlstm_pll_model #(
  parameter [31:0] MULTIPLY = 1,
  parameter [31:0] DIVIDE = 1
) (
  input source,
  input reset,
  output clock,
  output lock
);
  reg oscillator /* verilator public_flat_rw */;
  wire [31:0] multiply /* verilator public_flat_rd */;
  wire [31:0] divide /* verilator public_flat_rd */;
  reg [4:0] edges = 0;
  assign multiply = MULTIPLY;
  assign divide = DIVIDE;
  assign clock = oscillator;
  assign lock = edges[4];
  always @(posedge source) edges <= reset ? 5'd0 : edges + {4'd0, !edges[4]};
endmodule

// The loop is closed through CLKOP: its divider times the feedback's multiplies the source.
module EHXPLLL #(
  parameter CLKI_DIV = 1,
  parameter CLKFB_DIV = 1,
  parameter CLKOP_DIV = 8,
  parameter CLKOS_DIV = 8,
  parameter CLKOP_ENABLE = "ENABLED",
  parameter CLKOS_ENABLE = "DISABLED",
  parameter CLKOP_CPHASE = 0,
  parameter CLKOS_CPHASE = 0,
  parameter CLKOP_FPHASE = 0,
  parameter CLKOS_FPHASE = 0,
  parameter FEEDBK_PATH = "CLKOP",
  parameter OUTDIVIDER_MUXA = "DIVA",
  parameter OUTDIVIDER_MUXB = "DIVB",
  parameter DPHASE_SOURCE = "DISABLED",
  parameter PLLRST_ENA = "DISABLED",
  parameter INTFB_WAKE = "DISABLED",
  parameter STDBY_ENABLE = "DISABLED"
) (
  input CLKI,
  input CLKFB,
  input RST,
  input STDBY,
  input PHASESEL0,
  input PHASESEL1,
  input PHASEDIR,
  input PHASESTEP,
  input PHASELOADREG,
  input PLLWAKESYNC,
  input ENCLKOP,
  input ENCLKOS,
  output CLKOP,
  output CLKOS,
  output LOCK
);
  localparam SECOND = CLKOS_ENABLE == "ENABLED";
  wire clock;
  rtlstm_pll_model #(
    .MULTIPLY(CLKFB_DIV * CLKOP_DIV),
    .DIVIDE(CLKI_DIV * (SECOND ? CLKOS_DIV : CLKOP_DIV))
  ) model (.source(CLKI), .reset(RST & (PLLRST_ENA == "ENABLED")), .clock(clock), .lock(LOCK));
  // One clock is modelled: the second output's if it is on, else the loop's.
  assign CLKOP = SECOND ? 1'b0 : clock;
  assign CLKOS = SECOND ? clock : 1'b0;
endmodule

module SB_PLL40_PAD #(
  parameter FEEDBACK_PATH = "SIMPLE",
  parameter PLLOUT_SELECT = "GENCLK",
  parameter DIVR = 0,
  parameter DIVF = 0,
  parameter DIVQ = 0,
  parameter FILTER_RANGE = 0
) (
  input PACKAGEPIN,
  input RESETB,
  input BYPASS,
  output PLLOUTCORE,
  output PLLOUTGLOBAL,
  output LOCK
);
  rtlstm_pll_model #(.MULTIPLY(DIVF + 1), .DIVIDE((DIVR + 1) << DIVQ)) model (
    .source(PACKAGEPIN), .reset(~RESETB), .clock(PLLOUTGLOBAL), .lock(LOCK)
  );
  assign PLLOUTCORE = PLLOUTGLOBAL;
endmodule

module rPLL #(
  parameter FCLKIN = "27",
  parameter DEVICE = "",
  parameter DYN_IDIV_SEL = "false",
  parameter DYN_FBDIV_SEL = "false",
  parameter DYN_ODIV_SEL = "false",
  parameter DYN_DA_EN = "false",
  parameter IDIV_SEL = 0,
  parameter FBDIV_SEL = 0,
  parameter ODIV_SEL = 8,
  parameter CLKFB_SEL = "internal"
) (
  input CLKIN,
  input CLKFB,
  input RESET,
  input RESET_P,
  input [5:0] FBDSEL,
  input [5:0] IDSEL,
  input [5:0] ODSEL,
  input [3:0] PSDA,
  input [3:0] DUTYDA,
  input [3:0] FDLY,
  output CLKOUT,
  output LOCK
);
  rtlstm_pll_model #(.MULTIPLY(FBDIV_SEL + 1), .DIVIDE(IDIV_SEL + 1)) model (
    .source(CLKIN), .reset(RESET), .clock(CLKOUT), .lock(LOCK)
  );
endmodule
