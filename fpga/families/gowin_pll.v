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
