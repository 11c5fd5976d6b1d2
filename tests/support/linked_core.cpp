// A linked core, translated by Verilator, and a UART at the other end of its line, behind a thin C interface.
//
// Times are in units of 1/256 clock cycle, so that the two ends may disagree about the baud rate.

#include <cstdint>
#include <deque>
#include <memory>

#include "Vcore.h"
#include "verilated.h"

namespace {

class Linked {
public:
    Linked(uint64_t seed, int64_t bit) : bit_(bit) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed));
        top_ = std::make_unique<Vcore>(&context_, "linked");
        top_->rx = 1;
        reset();
    }
    ~Linked() { top_->final(); }

    void reset() {
        top_->rst = 1;
        for (int i = 0; i < 8; ++i) tick();
        top_->rst = 0;
    }
    // The cable is pulled: what is on the way is lost, perhaps in the middle of a byte.
    void drop() {
        out_.clear();
        in_.clear();
        left_ = 0;
        top_->rx = 1;
        change_ = now() + 10 * bit_;
    }
    void send(const uint8_t* bytes, int64_t count) { out_.insert(out_.end(), bytes, bytes + count); }

    // Runs so many cycles, or fewer: until a frame ends, or the line has been quiet for a while after some bytes.
    int64_t run(int64_t cycles, uint8_t* bytes, int64_t room) {
        const int64_t end = cycle_ + cycles;
        while (cycle_ < end && (in_.empty() || (in_.back() && (sampling_ >= 0 || now() - heard_ < 4 * bit_)))) step();
        int64_t count = 0;
        for (; count < room && !in_.empty(); ++count) {
            bytes[count] = in_.front();
            in_.pop_front();
        }
        return count;
    }
    int64_t cycle() const { return cycle_; }
    int64_t pending() const { return static_cast<int64_t>(out_.size()) + (left_ > 0); }
    int64_t badStops() const { return badStops_; }
    int64_t errors() const { return top_->errors; }

private:
    int64_t now() const { return cycle_ << 8; }
    void tick() {
        top_->clk = 0;
        top_->eval();
        top_->clk = 1;
        top_->eval();
        ++cycle_;
    }
    void step() {
        if (left_ > 0 && now() >= change_) {
            top_->rx = shift_ & 1;
            shift_ >>= 1;
            --left_;
            change_ += bit_;
        } else if (left_ == 0 && now() >= change_ && !out_.empty()) {
            shift_ = 0x200 | out_.front() << 1;
            out_.pop_front();
            top_->rx = 0;
            shift_ >>= 1;
            left_ = 9;
            change_ = (change_ > now() - bit_ ? change_ : now()) + bit_;
        }
        tick();
        receive();
    }
    void receive() {
        if (sampling_ < 0) {
            if (!top_->tx) {
                sampling_ = 0;
                sample_ = now() + bit_ + bit_ / 2;
                byte_ = 0;
            }
        } else if (now() >= sample_) {
            sample_ += bit_;
            if (sampling_++ < 8) {
                byte_ = byte_ >> 1 | top_->tx << 7;
            } else {
                sampling_ = -1;
                heard_ = now();
                if (top_->tx) {
                    in_.push_back(byte_);
                } else {
                    ++badStops_;
                }
            }
        }
    }

    VerilatedContext context_;
    std::unique_ptr<Vcore> top_;
    std::deque<uint8_t> out_, in_;
    int64_t bit_, cycle_ = 0, change_ = 0, sample_ = 0, heard_ = 0, badStops_ = 0;
    int left_ = 0, sampling_ = -1;
    uint32_t shift_ = 0;
    uint8_t byte_ = 0;
};

}  // namespace

#define RTLSTM_API extern "C" __attribute__((visibility("default")))

RTLSTM_API void* rtlstm_create(uint64_t seed, int64_t bit) { return new Linked(seed, bit); }
RTLSTM_API void rtlstm_destroy(void* it) { delete static_cast<Linked*>(it); }
RTLSTM_API void rtlstm_reset(void* it) { static_cast<Linked*>(it)->reset(); }
RTLSTM_API void rtlstm_drop(void* it) { static_cast<Linked*>(it)->drop(); }
RTLSTM_API void rtlstm_send(void* it, const uint8_t* bytes, int64_t count) { static_cast<Linked*>(it)->send(bytes, count); }
RTLSTM_API int64_t rtlstm_run(void* it, int64_t cycles, uint8_t* bytes, int64_t room) {
    return static_cast<Linked*>(it)->run(cycles, bytes, room);
}
RTLSTM_API int64_t rtlstm_cycle(void* it) { return static_cast<Linked*>(it)->cycle(); }
RTLSTM_API int64_t rtlstm_pending(void* it) { return static_cast<Linked*>(it)->pending(); }
RTLSTM_API int64_t rtlstm_bad_stops(void* it) { return static_cast<Linked*>(it)->badStops(); }
RTLSTM_API int64_t rtlstm_errors(void* it) { return static_cast<Linked*>(it)->errors(); }
