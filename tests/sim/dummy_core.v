// A core that keeps the port contract and computes y[j] = running sum of x[j % inputs] of the
// stream. The test puts definitions of the sizes and of TOP before this text.
//
// Bus: ID, BUILD (a scratch register), COMMAND 1 (clear the sums of stream STREAM),
// ROW and DATA (an echo memory of 64 words), CYCLES, and FLAGS to misbehave:
// bit 0 never answer, 1 wrong stream, 2 unstable y, 3 no y_last, 4 X in y, 5 rubbish past the end,
// 6 bus not ready, 7 unasked y, 8 two answers.

`define WORDS_IN (`BEATS_IN * `BEAT_IN)
`define WORDS_OUT (`BEATS_OUT * `BEAT_OUT)

module `TOP (
    input clk,
    input rst,
    input [`BEAT_IN*`BITS-1:0] x_data,
    input [`STREAM_BITS-1:0] x_stream,
    input x_quiet,
    input x_valid,
    output x_ready,
    output [`BEAT_OUT*`BITS-1:0] y_data,
    output [`STREAM_BITS-1:0] y_stream,
    output y_last,
    output y_valid,
    input y_ready,
    input [3:0] bus_address,
    input bus_write,
    input [31:0] bus_data,
    input bus_valid,
    output bus_ready,
    output reg [31:0] bus_read_data,
    output reg bus_read_valid
);
    reg [`BITS-1:0] sums [0:`STREAMS*`INPUTS-1];
    reg [31:0] echo [0:63];
    reg [31:0] scratch, stream, row, cycles;
    reg [8:0] flags;
    reg [`WORDS_IN*`BITS-1:0] x;
    reg [`STREAM_BITS-1:0] active;
    reg [15:0] beat_in, beat_out, wait_left;
    reg [1:0] state;
    integer i;

    localparam TAKE = 0, THINK = 1, GIVE = 2;

    assign x_ready = state == TAKE;
    assign y_valid = (state == GIVE && !flags[0]) || flags[7];
    assign y_stream = active ^ flags[1];
    assign y_last = beat_out == `BEATS_OUT - 1 && !flags[3];
    assign bus_ready = !flags[6] && !((bus_address == 8 || bus_address == 4) && state != TAKE);

    genvar g;
    generate
        for (g = 0; g < `BEAT_OUT; g = g + 1) begin : words
            wire [31:0] index = beat_out * `BEAT_OUT + g;
            wire [`BITS-1:0] sum = sums[active * `INPUTS + index % `INPUTS];
            assign y_data[g*`BITS +: `BITS] = index >= `OUTPUTS ? {`BITS{flags[5]}}
                : flags[4] ? {`BITS{1'bx}} : flags[2] ? sum ^ cycles[`BITS-1:0] : sum;
        end
    endgenerate

    always @(posedge clk) begin
        cycles <= cycles + 1;
        bus_read_valid <= bus_read_valid & flags[8];
        case (state)
            TAKE: if (x_valid) begin
                x[beat_in*`BEAT_IN*`BITS +: `BEAT_IN*`BITS] <= x_data;
                active <= x_stream;
                beat_in <= beat_in + 1;
                if (beat_in == `BEATS_IN - 1) begin
                    beat_in <= 0;
                    wait_left <= `LATENCY - 2;
                    state <= THINK;
                end
            end
            THINK: begin
                wait_left <= wait_left - 1;
                if (wait_left == 0) begin
                    for (i = 0; i < `INPUTS; i = i + 1)
                        sums[active*`INPUTS+i] <= sums[active*`INPUTS+i] + x[i*`BITS +: `BITS];
                    state <= GIVE;
                end
            end
            GIVE: if (y_valid && y_ready) begin
                beat_out <= beat_out + 1;
                if (beat_out == `BEATS_OUT - 1) begin
                    beat_out <= 0;
                    state <= TAKE;
                end
            end
        endcase
        if (bus_valid && bus_ready) begin
            if (bus_write) begin
                case (bus_address)
                    1: scratch <= bus_data;
                    3: stream <= bus_data;
                    4: for (i = 0; i < `INPUTS; i = i + 1) sums[stream*`INPUTS+i] <= 0;
                    5: flags <= bus_data[8:0];
                    7: row <= bus_data;
                    8: begin echo[row[5:0]] <= bus_data; row <= row + 1; end
                endcase
            end else begin
                bus_read_valid <= 1;
                case (bus_address)
                    0: bus_read_data <= 32'h4C53544D;
                    1: bus_read_data <= scratch;
                    8: begin bus_read_data <= echo[row[5:0]]; row <= row + 1; end
                    12: bus_read_data <= cycles;
                    default: bus_read_data <= 0;
                endcase
            end
        end
        if (rst) begin
            state <= TAKE;
            beat_in <= 0;
            beat_out <= 0;
            cycles <= 0;
            flags <= 0;
            row <= 0;
            bus_read_valid <= 0;
        end
    end
endmodule
