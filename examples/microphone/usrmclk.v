// The ECP5's cell in front of its configuration memory's clock pin, as the simulated board sees it.
module USRMCLK (
  input USRMCLKI,
  input USRMCLKTS
);
  wire clock /* verilator public_flat_rd */;
  assign clock = USRMCLKI & !USRMCLKTS;
endmodule
