// Clock and reset for the SoC. What the CPU writes to the UART is printed; end of transmission (4) ends it.

`timescale 1ns / 1ps

module bench;
    localparam LONGEST = 20_000_000;

    reg clk = 0, rst = 1;
    wire valid;
    wire [7:0] data;
    integer cycle = 0;

    soc soc (
        .sys_clk(clk), .sys_rst(rst), .serial_source_valid(valid), .serial_source_ready(1'b1),
        .serial_source_data(data), .serial_sink_valid(1'b0), .serial_sink_data(8'd0), .sim_trace(1'b0)
    );

    always #5 clk = !clk;

    always @(posedge clk) begin
        cycle <= cycle + 1;
        if (cycle == 8) rst <= 0;
        if (valid && data == 4) begin
            $display("%0d cycles of the SoC", cycle);
            $finish;
        end else if (valid)
            $write("%c", data);
        if (cycle == LONGEST) begin
            $display("FAIL: the CPU has not ended");
            $finish;
        end
    end
endmodule
