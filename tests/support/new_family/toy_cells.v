// The made-up family's hard multiplier, with a register at its output.
module TOY_MULT18 (input C, input signed [17:0] A, input signed [17:0] B, output reg signed [35:0] P);
  always @(posedge C) P <= A * B;
endmodule
