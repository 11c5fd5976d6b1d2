// What the families' memories with two read ports are compared with: two memories with the same contents.
// The contract is in docs/primitives.md.

// Each port reads as rtlstm_memory does. A write goes to the first port's address; in its cycle, what either
// port reads is not to be relied on.
module rtlstm_memory_pair #(
  parameter WIDTH = 1,
  parameter DEPTH = 1,
  parameter ABITS = 1,
  parameter OUTREG = 0
) (
  input clk,
  input [ABITS-1:0] address0,
  output [WIDTH-1:0] read_data0,
  input [ABITS-1:0] address1,
  output [WIDTH-1:0] read_data1,
  input [WIDTH-1:0] write_data,
  input write_enable
);
  rtlstm_memory #(.WIDTH(WIDTH), .DEPTH(DEPTH), .ABITS(ABITS), .OUTREG(OUTREG), .STYLE("block")) first (
    .clk(clk),
    .read_address(address0),
    .read_data(read_data0),
    .write_address(address0),
    .write_data(write_data),
    .write_enable(write_enable)
  );
  rtlstm_memory #(.WIDTH(WIDTH), .DEPTH(DEPTH), .ABITS(ABITS), .OUTREG(OUTREG), .STYLE("block")) second (
    .clk(clk),
    .read_address(address1),
    .read_data(read_data1),
    .write_address(address0),
    .write_data(write_data),
    .write_enable(write_enable)
  );
endmodule
