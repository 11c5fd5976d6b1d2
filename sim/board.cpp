// A board's top level, translated by Verilator, behind a thin C interface: its clock pin toggles, its PLL
// runs at the ratio that the cell's parameters make, and its serial port is a stream of bytes.
//
// The ports are clk, rx, tx and, as far as the board has them, led0 to led2 and button; the PLL's model is
// rtlstm_pll_model. Time is in femtoseconds since power came up.

#include <cstdint>
#include <deque>
#include <memory>

#include "Vcore.h"
#include "Vcore___024root.h"
#include "verilated.h"

namespace {

constexpr int64_t kSecond = 1'000'000'000'000'000;
constexpr int64_t kNever = INT64_MAX;

class Board {
public:
    Board(uint64_t seed, int64_t sourceHz, int64_t baud) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed));
        board_ = std::make_unique<Vcore>(&context_, "board");
        board_->rx = 1;
        board_->clk = 0;
#ifdef RTLSTM_BUTTON
        board_->button = RTLSTM_BUTTON;
#endif
        oscillator() = 0;
        board_->eval();
        halfSource_ = kSecond / 2 / sourceHz;
        const __int128 scaled = static_cast<__int128>(kSecond) * divide();
        halfClock_ = static_cast<int64_t>(scaled / multiply() / 2 / sourceHz);
        clockHz_ = static_cast<double>(sourceHz) * multiply() / divide();
        bit_ = kSecond / baud;
        nextSource_ = halfSource_;
        nextClock_ = halfClock_;
    }
    ~Board() { board_->final(); }

    void send(const uint8_t* bytes, int64_t count) { sending_.insert(sending_.end(), bytes, bytes + count); }

    // The cable is pulled: what is on the way is lost, perhaps in the middle of a byte.
    void cut() {
        sending_.clear();
        received_.clear();
        board_->rx = 1;
        left_ = 0;
        nextSend_ = now_ + 10 * bit_;
    }

    // Runs so many of the core's cycles, or fewer if bytes have come and the board pauses after them.
    int64_t run(int64_t cycles, uint8_t* bytes, int64_t room) {
        const int64_t end = cycle_ + cycles;
        while (cycle_ < end && !(!received_.empty() && now_ - lastReceived_ > 3 * bit_ && !receiving())) step();
        int64_t count = 0;
        for (; count < room && !received_.empty(); ++count) {
            bytes[count] = received_.front();
            received_.pop_front();
        }
        return count;
    }

    int64_t pending() const { return static_cast<int64_t>(sending_.size()) + (nextSend_ != kNever); }
    int64_t cycle() const { return cycle_; }
    int64_t badStops() const { return badStops_; }
    double clockHz() const { return clockHz_; }

    int leds() const {
        int lit = 0;
#ifdef RTLSTM_LED0
        lit |= (board_->led0 != RTLSTM_LED0) << 0;
#endif
#ifdef RTLSTM_LED1
        lit |= (board_->led1 != RTLSTM_LED1) << 1;
#endif
#ifdef RTLSTM_LED2
        lit |= (board_->led2 != RTLSTM_LED2) << 2;
#endif
        return lit;
    }

private:
    CData& oscillator() { return board_->rootp->rtlstm_board__DOT__pll__DOT__model__DOT__oscillator; }
    uint32_t multiply() { return board_->rootp->rtlstm_board__DOT__pll__DOT__model__DOT__multiply; }
    uint32_t divide() { return board_->rootp->rtlstm_board__DOT__pll__DOT__model__DOT__divide; }
    bool receiving() const { return nextSample_ != kNever; }

    // Moves time to the next thing that happens at a pin or in the PLL.
    void step() {
        int64_t next = nextClock_ < nextSource_ ? nextClock_ : nextSource_;
        if (nextSend_ == kNever && !sending_.empty()) startSending();
        if (nextSend_ < next) next = nextSend_;
        if (nextSample_ < next) next = nextSample_;
        now_ = next;
        if (now_ == nextSample_) sample();
        if (now_ == nextSend_) sendBit();
        if (now_ == nextSource_) {
            board_->clk = !board_->clk;
            nextSource_ += halfSource_;
        }
        if (now_ == nextClock_) {
            oscillator() ^= 1;
            cycle_ += oscillator();
            nextClock_ += halfClock_;
        }
        board_->eval();
        if (!receiving() && !board_->tx) {
            nextSample_ = now_ + bit_ / 2;
            samples_ = 0;
        }
    }

    void startSending() {
        // Start bit, data, stop bit, least significant first.
        shift_ = 0x200 | sending_.front() << 1;
        sending_.pop_front();
        left_ = 10;
        nextSend_ = now_ + 1;
    }

    void sendBit() {
        if (left_ == 0) {
            nextSend_ = kNever;
            return;
        }
        board_->rx = shift_ & 1;
        shift_ >>= 1;
        --left_;
        nextSend_ = now_ + bit_;
    }

    void sample() {
        const bool level = board_->tx;
        const int index = samples_++;
        nextSample_ = now_ + bit_;
        if (index == 0) {
            // Too short for a start bit.
            if (level) nextSample_ = kNever;
        } else if (index <= 8) {
            byte_ = static_cast<uint8_t>(byte_ >> 1 | level << 7);
        } else {
            if (level) {
                received_.push_back(byte_);
            } else {
                ++badStops_;
            }
            lastReceived_ = now_;
            nextSample_ = kNever;
        }
    }

    VerilatedContext context_;
    std::unique_ptr<Vcore> board_;
    std::deque<uint8_t> sending_, received_;
    int64_t now_ = 0, halfSource_ = 0, halfClock_ = 0, bit_ = 0;
    int64_t nextSource_ = 0, nextClock_ = 0, nextSend_ = kNever, nextSample_ = kNever;
    int64_t cycle_ = 0, lastReceived_ = 0, badStops_ = 0;
    double clockHz_ = 0;
    uint32_t shift_ = 0;
    int left_ = 0, samples_ = 0;
    uint8_t byte_ = 0;
};

}  // namespace

#define RTLSTM_API extern "C" __attribute__((visibility("default")))

RTLSTM_API void* rtlstm_create(uint64_t seed, int64_t sourceHz, int64_t baud) {
    return new Board(seed, sourceHz, baud);
}

RTLSTM_API void rtlstm_destroy(void* board) { delete static_cast<Board*>(board); }

RTLSTM_API void rtlstm_send(void* board, const uint8_t* bytes, int64_t count) {
    static_cast<Board*>(board)->send(bytes, count);
}

RTLSTM_API void rtlstm_cut(void* board) { static_cast<Board*>(board)->cut(); }

RTLSTM_API int64_t rtlstm_run(void* board, int64_t cycles, uint8_t* bytes, int64_t room) {
    return static_cast<Board*>(board)->run(cycles, bytes, room);
}

RTLSTM_API int64_t rtlstm_pending(void* board) { return static_cast<Board*>(board)->pending(); }

RTLSTM_API int64_t rtlstm_cycle(void* board) { return static_cast<Board*>(board)->cycle(); }

RTLSTM_API int64_t rtlstm_bad_stops(void* board) { return static_cast<Board*>(board)->badStops(); }

RTLSTM_API double rtlstm_clock_hz(void* board) { return static_cast<Board*>(board)->clockHz(); }

RTLSTM_API int rtlstm_leds(void* board) { return static_cast<Board*>(board)->leds(); }
