// Plays single accesses from standard input on a Wishbone build: "r NUMBER" and "w NUMBER WORD", in
// hexadecimal, are answered with "a WORD" or, if the device refuses them, "e".

`timescale 1ns / 1ns

module wishbone_port;
    localparam STDIN = 32'h8000_0000;

    reg clk = 0, rst = 1, cyc = 0, we = 0;
    reg [4:0] adr = 0;
    reg [31:0] dat_w = 0;
    wire [31:0] dat_r;
    wire ack, err;
    integer got, index;
    reg [7:0] command;

    dut_wishbone dut (
        .clk(clk), .rst(rst), .wb_cyc(cyc), .wb_stb(cyc), .wb_we(we), .wb_adr(adr), .wb_dat_w(dat_w),
        .wb_sel(4'hf), .wb_dat_r(dat_r), .wb_ack(ack), .wb_err(err)
    );

    task tick; begin #1 clk = 1; #1 clk = 0; end endtask

    initial begin
        for (index = 0; index < 8; index = index + 1) tick;
        rst = 0;
        tick;
        got = $fscanf(STDIN, " %c %h", command, adr);
        while (got == 2) begin
            we = command == "w";
            if (we) got = $fscanf(STDIN, "%h", dat_w);
            cyc = 1;
            while (!ack && !err) tick;
            if (err) $display("e"); else $display("a %h", dat_r);
            $fflush;
            tick;
            cyc = 0;
            got = $fscanf(STDIN, " %c %h", command, adr);
        end
        $finish;
    end
endmodule
