// The loop is closed through CLKOS5: its divider multiplies the source.
module PLL #(
  parameter PLLPD_N = "USED",
  parameter PLLRESET_ENA = "ENABLED",
  parameter REF_INTEGER_MODE = "ENABLED",
  parameter REF_MMD_DIG = 1,
  parameter FBK_INTEGER_MODE = "ENABLED",
  parameter FBK_MMD_DIG = 1,
  parameter SEL_FBK = "FBKCLK5",
  parameter CLKMUX_FB = "CMUX_CLKOS5",
  parameter ENCLK_CLKOS5 = "ENABLED",
  parameter DIVF = 0,
  parameter DELF = 0,
  parameter ENCLK_CLKOP = "ENABLED",
  parameter DIVA = 0,
  parameter DELA = 0,
  parameter PHIA = 0,
  parameter CRIPPLE = "5P",
  parameter CSET = "40P",
  parameter V2I_PP_RES = "10K",
  parameter IPP_CTRL = "0b1000",
  parameter IPI_CMP = "0b1000",
  parameter BW_CTL_BIAS = "0b0101",
  parameter IPP_SEL = "0b1111",
  parameter V2I_PP_ICTRL = "0b00110",
  parameter IPI_CMPN = "0b0011",
  parameter V2I_1V_EN = "DISABLED",
  parameter V2I_KVCO_SEL = "85",
  parameter KP_VCO = "0b11001"
) (
  input REFCK,
  input FBKCK,
  input PLLRESET,
  output CLKOP,
  output CLKOS5,
  output LOCK
);
  rtlstm_pll_model #(.MULTIPLY(DIVF + 1), .DIVIDE(DIVA + 1)) model (
    .source(REFCK), .reset(PLLRESET), .clock(CLKOP), .lock(LOCK)
  );
  assign CLKOS5 = 1'b0;
endmodule
