// A core, translated by Verilator, behind a thin C interface. The port contract is in the
// project's documentation; the sizes of the ports come as macros from rtlstm.sim.native.
//
// One cycle is: set inputs, settle, look at the handshakes, rising edge. Cycle numbers count
// rising edges since reset was released.

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "Vcore.h"
#include "verilated.h"
#ifdef RTLSTM_WAVES
#include "verilated_vcd_c.h"
#endif

namespace {

constexpr int kResetCycles = 8;
constexpr int kBeatIn = RTLSTM_BEAT_IN;
constexpr int kBeatOut = RTLSTM_BEAT_OUT;
constexpr int kBitsIn = RTLSTM_X_BITS;
constexpr int kBitsOut = RTLSTM_Y_BITS;
constexpr uint32_t kMaskIn = (1u << kBitsIn) - 1;
constexpr uint32_t kMaskOut = (1u << kBitsOut) - 1;

// Codes shared with rtlstm.sim.ports.Fault.
enum Status {
    kMore = -1,
    kDone = 0,
    kNoTransfer = 1,
    kBusRequest = 2,
    kBusAnswer = 3,
    kStream = 4,
    kLast = 5,
    kUnstable = 6,
    kUndue = 7,
    kPadding = 8,
    kEnded = 13,
    kUnasked = 14,
};

// Verilator makes ports of up to 64 bits integers and wider ones arrays of 32-bit words. Words are put into x and got
// from y.
template <typename Port>
void putWord(Port& port, int index, uint32_t value) {
    const int low = index * kBitsIn;
    port = static_cast<Port>(port | static_cast<Port>(static_cast<uint64_t>(value) << low));
}

template <typename Port>
uint32_t getWord(const Port& port, int index) {
    return static_cast<uint32_t>(static_cast<uint64_t>(port) >> (index * kBitsOut)) & kMaskOut;
}

template <typename Port>
void clearPort(Port& port) {
    port = 0;
}

template <std::size_t Size>
void putWord(VlWide<Size>& port, int index, uint32_t value) {
    const int low = index * kBitsIn, word = low >> 5, shift = low & 31;
    const uint64_t moved = static_cast<uint64_t>(value) << shift;
    port[word] |= static_cast<uint32_t>(moved);
    if (shift + kBitsIn > 32) port[word + 1] |= static_cast<uint32_t>(moved >> 32);
}

template <std::size_t Size>
uint32_t getWord(const VlWide<Size>& port, int index) {
    const int low = index * kBitsOut, word = low >> 5, shift = low & 31;
    uint64_t value = port[word];
    if (shift + kBitsOut > 32) value |= static_cast<uint64_t>(port[word + 1]) << 32;
    return static_cast<uint32_t>(value >> shift) & kMaskOut;
}

template <std::size_t Size>
void clearPort(VlWide<Size>& port) {
    std::memset(&port[0], 0, Size * sizeof(EData));
}

// Only a core of whole sequences has a port for a sequence's end.
template <typename Model>
auto putEnd(Model& model, bool end, int) -> decltype(model.x_last, void()) {
    model.x_last = end;
}
template <typename Model>
void putEnd(Model&, bool, long) {}

// xorshift64*: stalls and the words that the core must ignore.
class Random {
public:
    void seed(uint64_t value) { state_ = value * 0x9E3779B97F4A7C15ull | 1; }
    uint32_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Dull) >> 32);
    }
    bool happens(uint64_t threshold) { return threshold && next() < threshold; }

private:
    uint64_t state_ = 1;
};

struct Job {
    int64_t steps = 0;
    const int32_t* streams = nullptr;
    const uint8_t* quiet = nullptr;  // steps without output
    const uint8_t* ends = nullptr;   // last steps of sequences
    const int32_t* x = nullptr;
    int32_t* y = nullptr;
    int64_t* begun = nullptr;
    int64_t* accepted = nullptr;
    int64_t* offered = nullptr;
    int64_t sent = 0;       // steps whose last beat has been accepted
    int64_t delivered = 0;  // steps whose last beat has been taken
    int beatIn = 0;
    int beatOut = 0;
    bool holding = false;   // x offers a beat
    bool offering = false;  // y offered a beat that was not taken
    int64_t moved = 0;      // cycle of the last transfer
};

class Core {
public:
    explicit Core(uint64_t seed) {
#ifdef RTLSTM_WAVES
        context_.traceEverOn(true);
#endif
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed));
        core_ = std::make_unique<Vcore>(&context_, "core");
        random_.seed(seed);
        core_->x_valid = 0;
        core_->y_ready = 0;
        core_->bus_valid = 0;
        core_->rst = 1;
        for (int i = 0; i < kResetCycles; ++i) tick();
        core_->rst = 0;
        cycle_ = 0;
    }
    ~Core() {
        core_->final();
#ifdef RTLSTM_WAVES
        if (waves_) waves_->close();
#endif
    }

    // Waveforms from now on, if the model was compiled with them.
    int trace(const char* path) {
#ifdef RTLSTM_WAVES
        waves_ = std::make_unique<VerilatedVcdC>();
        waves_->set_time_unit("1ns");
        waves_->set_time_resolution("1ns");
        core_->trace(waves_.get(), 99);
        waves_->open(path);
        return waves_->isOpen();
#else
        (void)path;
        return 0;
#endif
    }

    int write(uint32_t address, const uint32_t* words, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            if (const int fault = request(address, true, words[i])) return fault;
            edge();
            core_->bus_valid = 0;
        }
        return kDone;
    }

    int read(uint32_t address, uint32_t* words, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            if (const int fault = request(address, false, random_.next())) return fault;
            // The answer may come in the cycle of the request or in a later one.
            const int64_t limit = cycle_ + patience;
            while (!core_->bus_read_valid) {
                edge();
                core_->bus_valid = 0;
                settle();
                if (cycle_ > limit) return kBusAnswer;
            }
            words[i] = core_->bus_read_data;
            edge();
            core_->bus_valid = 0;
        }
        return kDone;
    }

    void begin(const Job& job) {
        job_ = job;
        job_.moved = cycle_;
    }

    int run(int64_t cycles) {
        int status = kMore;
        for (int64_t i = 0; i < cycles && status == kMore; ++i) status = exchangeCycle();
        return context_.gotFinish() ? kEnded : status;
    }

    int64_t cycle() const { return cycle_; }
    int64_t delivered() const { return job_.delivered; }

    void stalls(uint64_t seed, double in, double out) {
        random_.seed(seed);
        stallIn_ = static_cast<uint64_t>(in * 4294967296.0);
        stallOut_ = static_cast<uint64_t>(out * 4294967296.0);
    }

    // Values of a step: a loadable core takes another network's.
    void resize(int inputs, int outputs) {
        inputs_ = inputs;
        outputs_ = outputs;
        beatsIn_ = (inputs + kBeatIn - 1) / kBeatIn;
        beatsOut_ = (outputs + kBeatOut - 1) / kBeatOut;
    }

    int64_t patience = 0;

private:
    void settle() {
        core_->clk = 0;
        core_->eval();
        dump(0);
    }
    void edge() {
        core_->clk = 1;
        core_->eval();
        dump(1);
        ++cycle_;
    }
    // Half 0 of a cycle is before its rising edge. Inputs may be set several times in it: the last counts.
    void dump(int half) {
#ifdef RTLSTM_WAVES
        if (waves_) waves_->dump(static_cast<uint64_t>(2 * (cycle_ + kResetCycles) + half));
#else
        (void)half;
#endif
    }
    void tick() {
        settle();
        edge();
    }

    // Offers a request; returns settled in the cycle that accepts it, before the edge.
    int request(uint32_t address, bool write, uint32_t data) {
        if (context_.gotFinish()) return kEnded;
        while (random_.happens(stallIn_)) {
            settle();
            if (core_->bus_read_valid) return kUnasked;
            edge();
        }
        core_->bus_address = address;
        core_->bus_write = write;
        core_->bus_data = data;
        core_->bus_valid = 1;
        const int64_t limit = cycle_ + patience;
        for (settle(); !core_->bus_ready; settle()) {
            if (core_->bus_read_valid) return kUnasked;
            edge();
            if (cycle_ > limit) return kBusRequest;
        }
        return write && core_->bus_read_valid ? kUnasked : kDone;
    }

    void offerBeat() {
        const int32_t* words = job_.x + job_.sent * inputs_ + job_.beatIn * kBeatIn;
        const int left = inputs_ - job_.beatIn * kBeatIn;
        clearPort(core_->x_data);
        for (int i = 0; i < kBeatIn; ++i) {
            const uint32_t word = i < left ? static_cast<uint32_t>(words[i]) : random_.next();
            putWord(core_->x_data, i, word & kMaskIn);
        }
        core_->x_stream = job_.streams[job_.sent];
        core_->x_quiet = job_.quiet[job_.sent];
        putEnd(*core_, job_.ends[job_.sent], 0);
        core_->x_valid = 1;
        job_.holding = true;
    }

    void pauseInput() {
        core_->x_valid = 0;
        if (!stallIn_) return;
        // What x carries while it is not valid must not matter.
        clearPort(core_->x_data);
        for (int i = 0; i < kBeatIn; ++i) putWord(core_->x_data, i, random_.next() & kMaskIn);
    }

    // A quiet step is done as soon as its input is taken: nothing else will be heard of it.
    void passQuiet() {
        while (job_.delivered < job_.sent && job_.quiet[job_.delivered]) ++job_.delivered;
    }

    int exchangeCycle() {
        Job& job = job_;
        if (job.delivered == job.steps) return kDone;
        if (!job.holding) {
            if (job.sent < job.steps && !random_.happens(stallIn_)) {
                offerBeat();
            } else {
                pauseInput();
            }
        }
        core_->y_ready = !random_.happens(stallOut_);
        settle();
        if (core_->bus_read_valid) return kUnasked;
        // Before this cycle's input counts: a result is due only for what came earlier.
        if (const int fault = output()) return fault;
        if (job.holding && core_->x_ready) inputTaken();
        passQuiet();
        edge();
        if (job.delivered == job.steps) {
            core_->x_valid = 0;
            core_->y_ready = 0;
            return kDone;
        }
        return cycle_ - job.moved > patience ? kNoTransfer : kMore;
    }

    void inputTaken() {
        Job& job = job_;
        job.moved = cycle_;
        job.holding = false;
        if (job.beatIn == 0) job.begun[job.sent] = cycle_;
        if (++job.beatIn == beatsIn_) {
            job.accepted[job.sent++] = cycle_;
            job.beatIn = 0;
        }
    }

    int output() {
        Job& job = job_;
        if (!core_->y_valid) return job.offering ? kUnstable : kDone;
        if (job.delivered >= job.sent) return kUndue;
        const bool last = job.beatOut == beatsOut_ - 1;
        if (job.offering) {
            for (int i = 0; i < kBeatOut; ++i) {
                if (getWord(core_->y_data, i) != seen_[i]) return kUnstable;
            }
        } else {
            job.offering = true;
            for (int i = 0; i < kBeatOut; ++i) seen_[i] = getWord(core_->y_data, i);
            if (last) job.offered[job.delivered] = cycle_;
        }
        if (static_cast<int32_t>(core_->y_stream) != job.streams[job.delivered]) return kStream;
        if (static_cast<bool>(core_->y_last) != last) return kLast;
        if (!core_->y_ready) return kDone;
        return outputTaken(last);
    }

    int outputTaken(bool last) {
        Job& job = job_;
        job.moved = cycle_;
        job.offering = false;
        int32_t* words = job.y + job.delivered * outputs_ + job.beatOut * kBeatOut;
        const int left = outputs_ - job.beatOut * kBeatOut;
        constexpr uint32_t kSign = 1u << (kBitsOut - 1);
        for (int i = 0; i < kBeatOut; ++i) {
            if (i < left) {
                words[i] = static_cast<int32_t>((seen_[i] ^ kSign) - kSign);
            } else if (seen_[i]) {
                return kPadding;
            }
        }
        job.beatOut = last ? 0 : job.beatOut + 1;
        job.delivered += last;
        return kDone;
    }

    VerilatedContext context_;
    std::unique_ptr<Vcore> core_;
#ifdef RTLSTM_WAVES
    std::unique_ptr<VerilatedVcdC> waves_;
#endif
    Random random_;
    Job job_;
    uint32_t seen_[kBeatOut] = {};
    int inputs_ = 0, outputs_ = 0, beatsIn_ = 0, beatsOut_ = 0;
    int64_t cycle_ = 0;
    uint64_t stallIn_ = 0;
    uint64_t stallOut_ = 0;
};

}  // namespace

#define RTLSTM_API extern "C" __attribute__((visibility("default")))

RTLSTM_API void* rtlstm_create(uint64_t seed) { return new Core(seed); }

RTLSTM_API void rtlstm_resize(void* core, int64_t inputs, int64_t outputs, int64_t patience) {
    static_cast<Core*>(core)->resize(static_cast<int>(inputs), static_cast<int>(outputs));
    static_cast<Core*>(core)->patience = patience;
}

RTLSTM_API void rtlstm_destroy(void* core) { delete static_cast<Core*>(core); }

RTLSTM_API int rtlstm_write(void* core, uint32_t address, const uint32_t* words, int64_t count) {
    return static_cast<Core*>(core)->write(address, words, count);
}

RTLSTM_API int rtlstm_read(void* core, uint32_t address, uint32_t* words, int64_t count) {
    return static_cast<Core*>(core)->read(address, words, count);
}

RTLSTM_API void rtlstm_stalls(void* core, uint64_t seed, double in, double out) {
    static_cast<Core*>(core)->stalls(seed, in, out);
}

// The arrays must live until rtlstm_run returns something other than kMore.
RTLSTM_API void rtlstm_begin(void* core, int64_t steps, const int32_t* streams, const uint8_t* quiet,
                             const uint8_t* ends, const int32_t* x, int32_t* y, int64_t* begun,
                             int64_t* accepted, int64_t* offered) {
    Job job;
    job.steps = steps;
    job.streams = streams;
    job.quiet = quiet;
    job.ends = ends;
    job.x = x;
    job.y = y;
    job.begun = begun;
    job.accepted = accepted;
    job.offered = offered;
    static_cast<Core*>(core)->begin(job);
}

RTLSTM_API int rtlstm_run(void* core, int64_t cycles) {
    return static_cast<Core*>(core)->run(cycles);
}

RTLSTM_API int rtlstm_trace(void* core, const char* path) { return static_cast<Core*>(core)->trace(path); }

RTLSTM_API int64_t rtlstm_cycle(void* core) { return static_cast<Core*>(core)->cycle(); }

RTLSTM_API int64_t rtlstm_delivered(void* core) { return static_cast<Core*>(core)->delivered(); }
