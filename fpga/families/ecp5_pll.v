// The loop is closed through CLKOP: its divider times the feedback's multiplies the source.
module EHXPLLL #(
  parameter CLKI_DIV = 1,
  parameter CLKFB_DIV = 1,
  parameter CLKOP_DIV = 8,
  parameter CLKOS_DIV = 8,
  parameter CLKOP_ENABLE = "ENABLED",
  parameter CLKOS_ENABLE = "DISABLED",
  parameter CLKOS2_ENABLE = "DISABLED",
  parameter CLKOS2_DIV = 8,
  parameter CLKOS2_CPHASE = 0,
  parameter CLKOS2_FPHASE = 0,
  parameter CLKOS3_ENABLE = "DISABLED",
  parameter CLKOS3_DIV = 8,
  parameter CLKOS3_CPHASE = 0,
  parameter CLKOS3_FPHASE = 0,
  parameter CLKOP_CPHASE = 0,
  parameter CLKOS_CPHASE = 0,
  parameter CLKOP_FPHASE = 0,
  parameter CLKOS_FPHASE = 0,
  parameter FEEDBK_PATH = "CLKOP",
  parameter OUTDIVIDER_MUXA = "DIVA",
  parameter OUTDIVIDER_MUXB = "DIVB",
  parameter OUTDIVIDER_MUXC = "DIVC",
  parameter OUTDIVIDER_MUXD = "DIVD",
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
  output CLKOS2,
  output CLKOS3,
  output LOCK
);
  localparam SECOND = CLKOS_ENABLE == "ENABLED";
  wire clock;
  rtlstm_pll_model #(
    .MULTIPLY(CLKFB_DIV * CLKOP_DIV),
    .DIVIDE(CLKI_DIV * (SECOND ? CLKOS_DIV : CLKOP_DIV))
  ) model (.source(CLKI), .reset(RST & (PLLRST_ENA == "ENABLED")), .clock(clock), .lock(LOCK));
  // One clock is modelled: the second output's if it is on, else the loop's. The others divide it.
  assign CLKOP = SECOND ? 1'b0 : clock;
  assign CLKOS = SECOND ? clock : 1'b0;
  localparam MAIN = SECOND ? CLKOS_DIV : CLKOP_DIV;
  rtlstm_ecp5_divider #(.EDGES(2 * CLKOS2_DIV / MAIN), .ON(CLKOS2_ENABLE == "ENABLED")) third (
    .clock(clock), .divided(CLKOS2)
  );
  rtlstm_ecp5_divider #(.EDGES(2 * CLKOS3_DIV / MAIN), .ON(CLKOS3_ENABLE == "ENABLED")) fourth (
    .clock(clock), .divided(CLKOS3)
  );
endmodule

// A clock whose cycle takes so many edges of another one.
module rtlstm_ecp5_divider #(
  parameter EDGES = 2,
  parameter ON = 0
) (
  input clock,
  output reg divided
);
  reg [7:0] count = 0;
  initial divided = 0;
  always @(posedge clock or negedge clock) if (ON) begin
    count <= count == EDGES - 1 ? 8'd0 : count + 8'd1;
    divided <= count < EDGES / 2;
  end
endmodule
