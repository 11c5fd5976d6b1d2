// Plays single accesses from standard input on a LiteX SoC's bus: "r ADDRESS" and "w ADDRESS WORD", words'
// addresses in hexadecimal, are answered with "a WORD" or, if the bus refuses them, "e". "i 0" is answered with
// the level of the build's interrupt behind LiteX's event manager.

`timescale 1ns / 1ps

module litex_soc;
    localparam STDIN = 32'h8000_0000;

    reg clk = 0, rst = 1, cyc = 0, we = 0;
    reg [29:0] adr = 0;
    reg [31:0] dat_w = 0;
    wire [31:0] dat_r;
    wire ack, err, irq;
    integer got, index;
    reg [7:0] command;

    soc soc (
        .clk(clk), .rst(rst), .host_cyc(cyc), .host_stb(cyc), .host_we(we), .host_adr(adr), .host_dat_w(dat_w),
        .host_sel(4'hf), .host_dat_r(dat_r), .host_ack(ack), .host_err(err), .host_irq(irq), .sim_trace(1'b0)
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
            if (command == "i") $display("a %h", irq);
            else begin
                cyc = 1;
                #1;
                while (!ack && !err) tick;
                if (err) $display("e"); else $display("a %h", dat_r);
                tick;
                cyc = 0;
            end
            $fflush;
            got = $fscanf(STDIN, " %c %h", command, adr);
        end
        $finish;
    end
endmodule
