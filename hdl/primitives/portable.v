
// Primitives in the forms that synthesis tools infer hard blocks from: for every family without a
// file of its own. The families' files have the same modules with the same ports, which do the same
// in every cycle. The contract is in docs/primitives.md.

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
  generate
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
    if (OUTREG != 0) begin : output_register
      reg [WIDTH-1:0] later;
      always @(posedge clk) later <= word;
      assign read_data = later;
    end else begin : output_register
      assign read_data = word;
    end
  endgenerate
endmodule

// A signed product, STAGES (1 to 3) cycles after its operands; one per cycle, no reset. KIND: "dsp"
// for a hard multiplier with its own registers, "lut" for logic.
module rtlstm_multiplier #(
  parameter A_BITS = 2,
  parameter B_BITS = 2,
  parameter STAGES = 1,
  parameter KIND = "dsp"
) (
  input clk,
  input signed [A_BITS-1:0] a,
  input signed [B_BITS-1:0] b,
  output signed [A_BITS+B_BITS-1:0] product
);
  wire signed [A_BITS-1:0] a_in;
  wire signed [B_BITS-1:0] b_in;
  generate
    if (STAGES > 1) begin : operands
      reg signed [A_BITS-1:0] a_q;
      reg signed [B_BITS-1:0] b_q;
      always @(posedge clk) begin
        a_q <= a;
        b_q <= b;
      end
      assign a_in = a_q;
      assign b_in = b_q;
    end else begin : operands
      assign a_in = a;
      assign b_in = b;
    end
    if (KIND == "lut") begin : kind
      (* use_dsp = "no", multstyle = "logic", syn_multstyle = "logic" *)
      reg signed [A_BITS+B_BITS-1:0] result;
      always @(posedge clk) result <= a_in * b_in;
    end else begin : kind
      (* use_dsp = "yes", multstyle = "dsp" *)
      reg signed [A_BITS+B_BITS-1:0] result;
      always @(posedge clk) result <= a_in * b_in;
    end
    if (STAGES > 2) begin : last
      reg signed [A_BITS+B_BITS-1:0] later;
      always @(posedge clk) later <= kind.result;
      assign product = later;
    end else begin : last
      assign product = kind.result;
    end
  endgenerate
endmodule

// Two signed products, STAGES cycles after their operands. SHARED = 1 promises that b0 and b1 are the
// same; some families then take less hardware.
module rtlstm_multiplier_pair #(
  parameter A_BITS = 2,
  parameter B_BITS = 2,
  parameter STAGES = 1,
  parameter KIND = "dsp",
  parameter SHARED = 1
) (
  input clk,
  input signed [A_BITS-1:0] a0,
  input signed [B_BITS-1:0] b0,
  input signed [A_BITS-1:0] a1,
  input signed [B_BITS-1:0] b1,
  output signed [A_BITS+B_BITS-1:0] product0,
  output signed [A_BITS+B_BITS-1:0] product1
);
  localparam unused = SHARED;
  rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) first (
    .clk(clk), .a(a0), .b(b0), .product(product0)
  );
  rtlstm_multiplier #(.A_BITS(A_BITS), .B_BITS(B_BITS), .STAGES(STAGES), .KIND(KIND)) second (
    .clk(clk), .a(a1), .b(b1), .product(product1)
  );
endmodule
