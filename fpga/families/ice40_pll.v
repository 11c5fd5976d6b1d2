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
