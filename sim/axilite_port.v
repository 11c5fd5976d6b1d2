// Plays single accesses from standard input on a Zynq board's top, as wishbone_port.v does on a Wishbone build:
// "r NUMBER" and "w NUMBER WORD", in hexadecimal, are answered with "a WORD" or, if refused, "e".

`timescale 1ns / 1ns

module axilite_port;
    localparam STDIN = 32'h8000_0000;

    reg aclk = 0, aresetn = 0, awvalid = 0, wvalid = 0, arvalid = 0;
    reg [4:0] number = 0;
    reg [31:0] word = 0;
    wire awready, wready, arready, bvalid, rvalid;
    wire [1:0] bresp, rresp;
    wire [31:0] rdata;
    integer got, index;
    reg [7:0] command;

    rtlstm_zynq dut (
        .aclk(aclk), .aresetn(aresetn),
        .s_axi_awaddr({5'd0, number, 2'd0}), .s_axi_awprot(3'd0), .s_axi_awvalid(awvalid), .s_axi_awready(awready),
        .s_axi_wdata(word), .s_axi_wstrb(4'hf), .s_axi_wvalid(wvalid), .s_axi_wready(wready),
        .s_axi_bresp(bresp), .s_axi_bvalid(bvalid), .s_axi_bready(1'b1),
        .s_axi_araddr({5'd0, number, 2'd0}), .s_axi_arprot(3'd0), .s_axi_arvalid(arvalid), .s_axi_arready(arready),
        .s_axi_rdata(rdata), .s_axi_rresp(rresp), .s_axi_rvalid(rvalid), .s_axi_rready(1'b1)
    );

    // What the slave takes in a cycle is no longer offered in the next.
    task tick;
        reg [2:0] taken;
        begin
            #1 taken = {awvalid & awready, wvalid & wready, arvalid & arready};
            aclk = 1;
            #1 {awvalid, wvalid, arvalid} = {awvalid, wvalid, arvalid} & ~taken;
            aclk = 0;
        end
    endtask

    initial begin
        for (index = 0; index < 8; index = index + 1) tick;
        aresetn = 1;
        tick;
        got = $fscanf(STDIN, " %c %h", command, number);
        while (got == 2) begin
            if (command == "w") begin
                got = $fscanf(STDIN, "%h", word);
                {awvalid, wvalid} = 2'b11;
            end else
                arvalid = 1;
            while (!bvalid && !rvalid) tick;
            if ((bvalid && bresp != 0) || (rvalid && rresp != 0)) $display("e"); else $display("a %h", rdata);
            $fflush;
            tick;
            got = $fscanf(STDIN, " %c %h", command, number);
        end
        $finish;
    end
endmodule
