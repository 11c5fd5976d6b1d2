
// A memory that synthesis tools infer hard blocks from, for the families without one of their own. The
// contract is in docs/primitives.md. A family whose large memory is an instance has it in a file before this
// one, which defines RTLSTM_LARGE_MEMORY.

// A memory with one clocked read port and one write port. A read gives what was written up to the
// clock edge before, one cycle after its address, or two with OUTREG = 1. What a read gives of a
// word that is written at the same edge is not to be relied on (here: the old word; hard blocks
// give anything). Contents are undefined until written. Each write enable covers WIDTH / GRANULES
// bits. STYLE: "auto", "block", "distributed" or "huge".
module rtlstm_memory #(
  parameter WIDTH = 1,
  parameter DEPTH = 1,
  parameter ABITS = 1,
  parameter GRANULES = 1,
  parameter OUTREG = 0,
  parameter [8*11-1:0] STYLE = "auto"
) (
  input clk,
  input [ABITS-1:0] read_address,
  output [WIDTH-1:0] read_data,
  input [ABITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input [GRANULES-1:0] write_enable
);
  localparam GRANULE = WIDTH / GRANULES;
  localparam [8*11-1:0] BLOCK = "block", DISTRIBUTED = "distributed", HUGE = "huge";
  reg [WIDTH-1:0] word;
  integer i;
`ifdef RTLSTM_LARGE_MEMORY
  wire [WIDTH-1:0] large_data;
`endif
  generate
`ifdef RTLSTM_LARGE_MEMORY
    if (STYLE == HUGE && GRANULES == 1) begin : style
      rtlstm_large_memory #(.WIDTH(WIDTH), .DEPTH(DEPTH), .ABITS(ABITS), .OUTREG(OUTREG)) memory (
        .clk(clk),
        .read_address(read_address),
        .read_data(large_data),
        .write_address(write_address),
        .write_data(write_data),
        .write_enable(write_enable[0])
      );
    end else
`endif
    if (STYLE == BLOCK) begin : style
      (* no_rw_check, ram_style = "block", syn_ramstyle = "block_ram" *)
      reg [WIDTH-1:0] rows [0:DEPTH-1];
      always @(posedge clk) begin
        word <= rows[read_address];
        for (i = 0; i < GRANULES; i = i + 1)
          if (write_enable[i])
            rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
      end
    end else if (STYLE == DISTRIBUTED) begin : style
      (* no_rw_check, ram_style = "distributed", syn_ramstyle = "distributed", ramstyle = "MLAB" *)
      reg [WIDTH-1:0] rows [0:DEPTH-1];
      always @(posedge clk) begin
        word <= rows[read_address];
        for (i = 0; i < GRANULES; i = i + 1)
          if (write_enable[i])
            rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
      end
    end else if (STYLE == HUGE) begin : style
      (* no_rw_check, ram_style = "ultra" *)
      reg [WIDTH-1:0] rows [0:DEPTH-1];
      always @(posedge clk) begin
        word <= rows[read_address];
        for (i = 0; i < GRANULES; i = i + 1)
          if (write_enable[i])
            rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
      end
    end else begin : style
      (* no_rw_check *)
      reg [WIDTH-1:0] rows [0:DEPTH-1];
      always @(posedge clk) begin
        word <= rows[read_address];
        for (i = 0; i < GRANULES; i = i + 1)
          if (write_enable[i])
            rows[write_address][i*GRANULE +: GRANULE] <= write_data[i*GRANULE +: GRANULE];
      end
    end
`ifdef RTLSTM_LARGE_MEMORY
    if (STYLE == HUGE && GRANULES == 1) begin : output_register
      assign read_data = large_data;
    end else
`endif
    if (OUTREG != 0) begin : output_register
      reg [WIDTH-1:0] later;
      always @(posedge clk) later <= word;
      assign read_data = later;
    end else begin : output_register
      assign read_data = word;
    end
  endgenerate
endmodule
`undef RTLSTM_LARGE_MEMORY
