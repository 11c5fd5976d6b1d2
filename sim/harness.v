// Plays commands from standard input on a core's ports and prints what happens, for
// rtlstm.sim.icarus. The sizes of the ports come as macros. Numbers are hexadecimal.
//
//   w REGISTER COUNT WORD...      write           k CYCLE
//   r REGISTER COUNT              read            v WORD (each), k CYCLE
//   x STEPS (STREAM MARKS BEAT...)...  exchange   a BEGUN ACCEPTED (each step),
//                                                 y OFFERED WORDS (each beat), k CYCLE
//   s SEED IN OUT                 stall with probabilities IN, OUT of 2**31; k CYCLE
//   n IN OUT PATIENCE             beats of a step, and cycles to wait for a transfer; k CYCLE
//   q                             end
//
// With +wave=FILE it writes waveforms from the first exchange on.
//
// A step's MARKS are 1 if its output is not wanted, plus 2 if it is the last of a sequence.
//
// A fault is printed as "e CODE STEP" and ends the simulation; the codes are those of
// rtlstm.sim.ports.Fault. One cycle is: set inputs, settle, look at the handshakes, rising edge.

`timescale 1ns / 1ns

module rtlstm_harness;
    localparam STDIN = 32'h8000_0000;

    reg clk, rst;
    reg [`RTLSTM_X_BITS-1:0] x_data;
    reg [`RTLSTM_STREAM_BITS-1:0] x_stream;
    reg x_valid;
    reg x_quiet, x_last;
    wire x_ready;
    wire [`RTLSTM_Y_BITS-1:0] y_data;
    wire [`RTLSTM_STREAM_BITS-1:0] y_stream;
    wire y_last, y_valid;
    reg y_ready;
    reg [3:0] bus_address;
    reg bus_write;
    reg [31:0] bus_data;
    reg bus_valid;
    wire bus_ready;
    wire [31:0] bus_read_data;
    wire bus_read_valid;

    `RTLSTM_TOP core (
        .clk(clk),
        .rst(rst),
        .x_data(x_data),
        .x_stream(x_stream),
        .x_quiet(x_quiet),
`ifdef RTLSTM_SEQUENCES
        .x_last(x_last),
`endif
        .x_valid(x_valid),
        .x_ready(x_ready),
        .y_data(y_data),
        .y_stream(y_stream),
        .y_last(y_last),
        .y_valid(y_valid),
        .y_ready(y_ready),
        .bus_address(bus_address),
        .bus_write(bus_write),
        .bus_data(bus_data),
        .bus_valid(bus_valid),
        .bus_ready(bus_ready),
        .bus_read_data(bus_read_data),
        .bus_read_valid(bus_read_valid)
    );

    integer cycle, patience, limit, got, beats_in, beats_out;
    integer seed, stall_in, stall_out, draw;
    reg [7:0] command;

    // Set by the exchange.
    integer steps, sent, delivered, beat_in, beat_out, begun, moved;
    reg holding, offering;
    reg [`RTLSTM_Y_BITS-1:0] seen;
    integer head, tail;
    reg [`RTLSTM_STREAM_BITS-1:0] stream_in;
    // Streams of the steps under way: no core holds this many between x and y.
    reg [`RTLSTM_STREAM_BITS-1:0] due [0:`RTLSTM_DUE-1];
    reg [1:0] marks_in;
    reg hush [0:`RTLSTM_DUE-1];

    task edge_;
        begin
            clk = 1;
            #1 clk = 0;
            cycle = cycle + 1;
        end
    endtask

    task fault(input integer code, input integer step);
        begin
            $display("e %0h %0d", code, step);
            $fflush;
            $finish;
            // $finish ends the simulation with the current time step only.
            #1;
        end
    endtask

    function happens(input integer threshold);
        begin
            happens = 0;
            if (threshold != 0) begin
                draw = $random(seed);
                happens = draw[30:0] < threshold;
            end
        end
    endfunction

    task done;
        begin
            $display("k %0h", cycle);
            $fflush;
        end
    endtask

    // Offers a request; returns settled in the cycle that accepts it, before the edge.
    task request(input [31:0] address, input write, input [31:0] word);
        begin
            while (happens(stall_in)) begin
                idle_bus;
                #1 if (bus_read_valid === 1) fault(14, -1);
                edge_;
            end
            bus_data = word;
            bus_address = address;
            bus_write = write;
            bus_valid = 1;
            limit = cycle + patience;
            #1;
            while (bus_ready !== 1) begin
                if (bus_ready !== 0) fault(11, -1);
                if (bus_read_valid === 1) fault(14, -1);
                edge_;
                if (cycle > limit) fault(2, -1);
                #1;
            end
            if (write && bus_read_valid === 1) fault(14, -1);
        end
    endtask

    // What an idle port carries must not matter.
    task idle_bus;
        begin
            bus_valid = 0;
            bus_address = 4'bx;
            bus_write = 1'bx;
            bus_data = 32'bx;
        end
    endtask

    task do_write;
        integer index, count;
        reg [31:0] address, word;
        begin
            got = $fscanf(STDIN, "%h %h", address, count);
            for (index = 0; index < count; index = index + 1) begin
                got = $fscanf(STDIN, "%h", word);
                request(address, 1, word);
                edge_;
            end
            idle_bus;
            done;
        end
    endtask

    task do_read;
        integer index, count;
        reg [31:0] address;
        begin
            got = $fscanf(STDIN, "%h %h", address, count);
            for (index = 0; index < count; index = index + 1) begin
                request(address, 0, 32'bx);
                while (bus_read_valid !== 1) begin
                    if (bus_read_valid !== 0) fault(11, -1);
                    edge_;
                    idle_bus;
                    if (cycle > limit + patience) fault(3, -1);
                    #1;
                end
                if (^bus_read_data === 1'bx) fault(12, -1);
                $display("v %h", bus_read_data);
                edge_;
                idle_bus;
            end
            done;
        end
    endtask

    task drive;
        begin
            if (!holding && sent < steps && !happens(stall_in)) begin
                if (beat_in == 0) begin
                    got = $fscanf(STDIN, "%h %h", stream_in, marks_in);
                    due[head] = stream_in;
                    hush[head] = marks_in[0];
                end
                got = $fscanf(STDIN, "%h", x_data);
                x_stream = stream_in;
                x_quiet = marks_in[0];
                x_last = marks_in[1];
                x_valid = 1;
                holding = 1;
            end else if (!holding) begin
                x_valid = 0;
                x_data = {`RTLSTM_X_BITS{1'bx}};
                x_stream = {`RTLSTM_STREAM_BITS{1'bx}};
                x_quiet = 1'bx;
                x_last = 1'bx;
            end
            y_ready = !happens(stall_out);
        end
    endtask

    task look_at_y;
        reg last;
        begin
            last = beat_out == beats_out - 1;
            if (bus_read_valid === 1) fault(14, -1);
            if (x_ready === 1'bx || x_ready === 1'bz) fault(9, sent);
            if (y_valid !== 0 && y_valid !== 1) fault(9, delivered);
            if (y_valid && sent <= delivered) fault(7, delivered);
            if (y_valid) begin
                if (^{y_data, y_stream, y_last} === 1'bx) fault(10, delivered);
                if (offering && y_data !== seen) fault(6, delivered);
                if (y_stream !== due[tail]) fault(4, delivered);
                if (y_last !== last) fault(5, delivered);
                // The line's first number is the cycle that offers, not the one that takes.
                if (!offering) $display("y %0h %h", cycle, y_data);
                offering = !y_ready;
                seen = y_data;
            end else if (offering) fault(6, delivered);
            if (y_valid && y_ready) begin
                moved = cycle;
                beat_out = last ? 0 : beat_out + 1;
                if (last) begin
                    delivered = delivered + 1;
                    tail = (tail + 1) % `RTLSTM_DUE;
                end
            end
        end
    endtask

    task look_at_x;
        begin
            if (holding && x_ready) begin
                moved = cycle;
                holding = 0;
                if (beat_in == 0) begun = cycle;
                beat_in = beat_in + 1;
                if (beat_in == beats_in) begin
                    $display("a %0h %0h", begun, cycle);
                    beat_in = 0;
                    sent = sent + 1;
                    head = (head + 1) % `RTLSTM_DUE;
                end
            end
        end
    endtask

    // A quiet step is done as soon as its input is taken: nothing else will be heard of it.
    task pass_quiet;
        begin
            while (delivered < sent && hush[tail]) begin
                delivered = delivered + 1;
                tail = (tail + 1) % `RTLSTM_DUE;
            end
        end
    endtask

    reg [8*4096-1:0] wave;
    reg waved;

    task do_exchange;
        begin
            got = $fscanf(STDIN, "%h", steps);
            if (!waved && $value$plusargs("wave=%s", wave)) begin
                $dumpfile(wave);
                $dumpvars(0, rtlstm_harness.core);
            end
            waved = 1;
            sent = 0;
            delivered = 0;
            beat_in = 0;
            beat_out = 0;
            head = 0;
            tail = 0;
            holding = 0;
            offering = 0;
            moved = cycle;
            while (delivered < steps) begin
                drive;
                #1;
                look_at_y;
                look_at_x;
                pass_quiet;
                edge_;
                if (cycle - moved > patience) fault(1, delivered);
            end
            x_valid = 0;
            y_ready = 0;
            done;
        end
    endtask

    task reset;
        begin
            clk = 0;
            x_valid = 0;
            y_ready = 0;
            idle_bus;
            rst = 1;
            repeat (8) begin #1 edge_; end
            rst = 0;
            cycle = 0;
        end
    endtask

    initial begin
        patience = 20000;
        beats_in = 1;
        beats_out = 1;
        seed = 1;
        stall_in = 0;
        stall_out = 0;
        cycle = 0;
        waved = 0;
        reset;
        done;
        got = $fscanf(STDIN, " %c", command);
        while (got == 1 && command != "q") begin
            case (command)
                "w": do_write;
                "r": do_read;
                "x": do_exchange;
                "s": begin
                    got = $fscanf(STDIN, "%h %h %h", seed, stall_in, stall_out);
                    done;
                end
                "n": begin
                    got = $fscanf(STDIN, "%h %h %h", beats_in, beats_out, patience);
                    done;
                end
                default: fault(255, command);
            endcase
            got = $fscanf(STDIN, " %c", command);
        end
        $finish;
    end
endmodule
