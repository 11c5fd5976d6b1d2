// A moving average of four samples, a network that sees one average a step, and a threshold behind it.
// An example for rtlstm's docs/integrate.md. The core is spotter_axi, whose registers are this module's.

module alarm_filter #(
    parameter signed [7:0] THRESHOLD = 0
) (
    input  wire        clk,
    input  wire        rst_n,

    input  wire signed [7:0] sample,
    input  wire        sample_valid,
    output wire        sample_ready,

    output reg         alarm,
    output reg         alarm_valid,

    input  wire [6:0]  s_axi_awaddr,
    input  wire        s_axi_awvalid,
    output wire        s_axi_awready,
    input  wire [31:0] s_axi_wdata,
    input  wire [3:0]  s_axi_wstrb,
    input  wire        s_axi_wvalid,
    output wire        s_axi_wready,
    output wire [1:0]  s_axi_bresp,
    output wire        s_axi_bvalid,
    input  wire        s_axi_bready,
    input  wire [6:0]  s_axi_araddr,
    input  wire        s_axi_arvalid,
    output wire        s_axi_arready,
    output wire [1:0]  s_axi_rresp,
    output wire [31:0] s_axi_rdata,
    output wire        s_axi_rvalid,
    input  wire        s_axi_rready
);
    // The moving average: a step for every sample.
    reg signed [7:0] last [0:2];
    reg signed [7:0] average;
    reg              average_valid;
    wire             average_ready;
    wire signed [9:0] sum = sample + last[0] + last[1] + last[2];

    assign sample_ready = !average_valid || average_ready;

    always @(posedge clk)
        if (!rst_n) begin
            last[0] <= 0;
            last[1] <= 0;
            last[2] <= 0;
            average_valid <= 0;
        end else if (sample_ready) begin
            average_valid <= sample_valid;
            if (sample_valid) begin
                average <= sum >>> 2;
                last[0] <= sample;
                last[1] <= last[0];
                last[2] <= last[1];
            end
        end

    wire signed [7:0] score;
    wire              score_valid;

    spotter_axi detector (
        .aclk(clk),
        .aresetn(rst_n),
        .s_axis_x_tdata(average),
        .s_axis_x_tid(1'b0),
        .s_axis_x_tuser(1'b0),
        .s_axis_x_tlast(1'b1),
        .s_axis_x_tvalid(average_valid),
        .s_axis_x_tready(average_ready),
        .m_axis_y_tdata(score),
        .m_axis_y_tid(),
        .m_axis_y_tuser(),
        .m_axis_y_tlast(),
        .m_axis_y_tvalid(score_valid),
        .m_axis_y_tready(1'b1),
        .s_axi_awaddr(s_axi_awaddr),
        .s_axi_awvalid(s_axi_awvalid),
        .s_axi_awready(s_axi_awready),
        .s_axi_wdata(s_axi_wdata),
        .s_axi_wstrb(s_axi_wstrb),
        .s_axi_wvalid(s_axi_wvalid),
        .s_axi_wready(s_axi_wready),
        .s_axi_bresp(s_axi_bresp),
        .s_axi_bvalid(s_axi_bvalid),
        .s_axi_bready(s_axi_bready),
        .s_axi_araddr(s_axi_araddr),
        .s_axi_arvalid(s_axi_arvalid),
        .s_axi_arready(s_axi_arready),
        .s_axi_rresp(s_axi_rresp),
        .s_axi_rdata(s_axi_rdata),
        .s_axi_rvalid(s_axi_rvalid),
        .s_axi_rready(s_axi_rready),
        .irq()
    );

    // The threshold.
    always @(posedge clk)
        if (!rst_n) begin
            alarm <= 0;
            alarm_valid <= 0;
        end else begin
            alarm_valid <= score_valid;
            if (score_valid) alarm <= score > THRESHOLD;
        end
endmodule
