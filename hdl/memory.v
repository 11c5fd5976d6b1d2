
// A memory with one clocked read port and one write port, in the form that synthesis tools infer
// block RAM from. A read gives what was written up to the clock edge before. Contents are
// undefined until written. Each write enable covers WIDTH / GRANULES bits.
module rtlstm_memory #(
  parameter WIDTH = 1,
  parameter DEPTH = 1,
  parameter ABITS = 1,
  parameter GRANULES = 1
) (
  input clk,
  input [ABITS-1:0] read_address,
  output reg [WIDTH-1:0] read_data,
  input [ABITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input [GRANULES-1:0] write_enable
);
  localparam GRANULE = WIDTH / GRANULES;
  reg [WIDTH-1:0] cells [0:DEPTH-1];
  integer i;
  always @(posedge clk) begin
    read_data <= cells[read_address];
    for (i = 0; i < GRANULES; i = i + 1)
      if (write_enable[i])
        cells[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
  end
endmodule
