
// UltraRAM of AMD Xilinx' UltraScale+, 4,096 words of 72 bits a block, for the memories of style "huge" in
// memory.v.
`ifndef RTLSTM_SIMULATION
`define RTLSTM_LARGE_MEMORY
`endif

// One block: port A writes, port B reads. OREG must be a literal, because a choice between two strings of unlike
// lengths pads one of them.
module rtlstm_ultraram_cell #(
  parameter OREG = "FALSE"
) (
  input clk,
  input [11:0] read_address,
  output [71:0] read_data,
  input [11:0] write_address,
  input [71:0] write_data,
  input write_enable
);
  URAM288_BASE #(
    .BWE_MODE_A("PARITY_INDEPENDENT"),
    .BWE_MODE_B("PARITY_INDEPENDENT"),
    .EN_AUTO_SLEEP_MODE("FALSE"),
    .EN_ECC_RD_A("FALSE"),
    .EN_ECC_RD_B("FALSE"),
    .EN_ECC_WR_A("FALSE"),
    .EN_ECC_WR_B("FALSE"),
    .IREG_PRE_A("FALSE"),
    .IREG_PRE_B("FALSE"),
    .OREG_A("FALSE"),
    .OREG_B(OREG),
    .OREG_ECC_A("FALSE"),
    .OREG_ECC_B("FALSE"),
    .USE_EXT_CE_A("FALSE"),
    .USE_EXT_CE_B("FALSE")
  ) ram (
    .CLK(clk), .SLEEP(1'b0),
    .ADDR_A({11'd0, write_address}), .DIN_A(write_data), .BWE_A(9'h1ff), .EN_A(write_enable), .RDB_WR_A(1'b1),
    .ADDR_B({11'd0, read_address}), .DOUT_B(read_data), .EN_B(1'b1), .RDB_WR_B(1'b0), .DIN_B(72'd0), .BWE_B(9'd0),
    .RST_A(1'b0), .RST_B(1'b0), .OREG_CE_A(1'b0), .OREG_CE_B(1'b1), .OREG_ECC_CE_A(1'b0), .OREG_ECC_CE_B(1'b0),
    .INJECT_SBITERR_A(1'b0), .INJECT_DBITERR_A(1'b0), .INJECT_SBITERR_B(1'b0), .INJECT_DBITERR_B(1'b0)
  );
endmodule

// A memory with one write enable. Deeper ones are banks, with a multiplexer behind their output registers: a
// cascade would need a register in each of its blocks, and so more cycles than a memory has.
module rtlstm_large_memory #(
  parameter WIDTH = 72,
  parameter DEPTH = 4096,
  parameter ABITS = 12,
  parameter OUTREG = 0
) (
  input clk,
  input [ABITS-1:0] read_address,
  output [WIDTH-1:0] read_data,
  input [ABITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input write_enable
);
  localparam COLUMNS = (WIDTH + 71) / 72;
  localparam BANKS = (DEPTH + 4095) / 4096;
  localparam SPAN = 72 * COLUMNS;
  wire [ABITS+11:0] reads = {12'd0, read_address}, writes = {12'd0, write_address};
  wire [SPAN+WIDTH-1:0] padded = {{SPAN{1'b0}}, write_data};
  wire [SPAN*BANKS-1:0] words;
  reg [ABITS-1:0] read_bank, later_bank;
  wire [ABITS-1:0] chosen = OUTREG ? later_bank : read_bank;
  wire [SPAN-1:0] word;
  genvar bank, column;
  always @(posedge clk) begin
    read_bank <= reads[ABITS+11:12];
    later_bank <= read_bank;
  end
  generate
    for (bank = 0; bank < BANKS; bank = bank + 1) begin : banks
      for (column = 0; column < COLUMNS; column = column + 1) begin : columns
        if (OUTREG) begin : form
          rtlstm_ultraram_cell #(.OREG("TRUE")) block (
            .clk(clk),
            .read_address(reads[11:0]),
            .read_data(words[SPAN*bank+72*column +: 72]),
            .write_address(writes[11:0]),
            .write_data(padded[72*column +: 72]),
            .write_enable(write_enable && writes[ABITS+11:12] == bank)
          );
        end else begin : form
          rtlstm_ultraram_cell #(.OREG("FALSE")) block (
            .clk(clk),
            .read_address(reads[11:0]),
            .read_data(words[SPAN*bank+72*column +: 72]),
            .write_address(writes[11:0]),
            .write_data(padded[72*column +: 72]),
            .write_enable(write_enable && writes[ABITS+11:12] == bank)
          );
        end
      end
    end
    if (BANKS == 1) begin : choice
      assign word = words;
    end else begin : choice
      assign word = words >> (chosen * SPAN);
    end
  endgenerate
  assign read_data = word[WIDTH-1:0];
endmodule
