module SB_PLL40_2_PAD #(
  parameter FEEDBACK_PATH = "SIMPLE",
  parameter PLLOUT_SELECT_PORTB = "GENCLK",
  parameter DIVR = 0,
  parameter DIVF = 0,
  parameter DIVQ = 0,
  parameter FILTER_RANGE = 0
) (
  input PACKAGEPIN,
  input RESETB,
  input BYPASS,
  output PLLOUTCOREA,
  output PLLOUTGLOBALA,
  output PLLOUTCOREB,
  output PLLOUTGLOBALB,
  output LOCK
);
  rtlstm_pll_model #(.MULTIPLY(DIVF + 1), .DIVIDE((DIVR + 1) << DIVQ)) model (
    .source(PACKAGEPIN), .reset(~RESETB), .clock(PLLOUTGLOBALB), .lock(LOCK)
  );
  assign PLLOUTGLOBALA = PACKAGEPIN;
  assign PLLOUTCOREA = PLLOUTGLOBALA;
  assign PLLOUTCOREB = PLLOUTGLOBALB;
endmodule
