// Behavioural models of the ECP5 cells at the pins of an RGMII, and of the flip-flop of its reset.
// A delay takes no time here: the simulation's harness changes data between the clock's edges.

module DELAYG #(
  parameter DEL_MODE = "USER_DEFINED",
  parameter DEL_VALUE = 0
) (
  input A,
  output Z
);
  assign Z = A;
endmodule

// What is received at a rising edge and at the falling edge after it comes out at the next rising edge.
module IDDRX1F (
  input D,
  input SCLK,
  input RST,
  output reg Q0,
  output reg Q1
);
  reg rising, falling;
  always @(negedge SCLK) falling <= D;
  always @(posedge SCLK) begin
    rising <= D;
    Q0 <= rising;
    Q1 <= falling;
  end
endmodule

module ODDRX1F (
  input D0,
  input D1,
  input SCLK,
  input RST,
  output Q
);
  reg first, second;
  always @(posedge SCLK) begin
    first <= D0;
    second <= D1;
  end
  assign Q = SCLK ? first : second;
endmodule

module FD1S3BX (
  input D,
  input CK,
  input PD,
  output reg Q
);
  always @(posedge CK, posedge PD) if (PD) Q <= 1'b1; else Q <= D;
endmodule
