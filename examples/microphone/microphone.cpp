// The board's top, translated by Verilator, between a microphone, a flash memory and a watch.
//
// The microphone has the clocks at its pins and gives a sample's bits, the highest first, one bit behind the
// change of word select. In the right half of a frame it gives the inverse: nobody may read that. The flash
// knows the command 03. Time is in cycles of the core's clock since the PLL has locked.

#include <cstdint>
#include <memory>
#include <vector>

#include "Vcore.h"
#include "Vcore___024root.h"
#include "verilated.h"

namespace {

class Board {
public:
    explicit Board(uint64_t seed) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed));
        board_ = std::make_unique<Vcore>(&context_, "board");
        board_->clk = 0;
        board_->button = 1;
        board_->mic_sd = 0;
        board_->flash_cipo = 0;
        oscillator() = 0;
        board_->eval();
        for (int edge = 0; edge < 64; ++edge) {
            board_->clk = !board_->clk;
            board_->eval();
        }
        step_ = board_->step;
    }
    ~Board() { board_->final(); }

    void flash(const uint8_t* bytes, int64_t count, int64_t address) {
        memory_.assign(address + count, 0xff);
        std::copy(bytes, bytes + count, memory_.begin() + address);
    }

    void begin(const int32_t* samples, int64_t count, int64_t each, uint8_t* said, int64_t* heard,
               int64_t* changed) {
        samples_ = samples, count_ = count, each_ = each;
        said_ = said, heard_ = heard, changed_ = changed;
    }

    // Runs so many cycles, or until all samples have been decided; returns how many decisions there are.
    int64_t run(int64_t cycles) {
        for (int64_t end = cycle_ + cycles; cycle_ < end && steps_ < count_ / each_; ++cycle_) {
            oscillator() = 1;
            board_->eval();
            listen();
            read();
            if (board_->step != step_ && board_->led1) {
                said_[steps_] = board_->speech;
                changed_[steps_++] = cycle_;
            }
            step_ = board_->step;
            oscillator() = 0;
            board_->eval();
        }
        return steps_;
    }

    int64_t cycle() const { return cycle_; }
    int leds() const { return board_->led0 | board_->led1 << 1 | board_->led2 << 2; }

private:
    CData& oscillator() { return board_->rootp->rtlstm_board__DOT__pll__DOT__model__DOT__oscillator; }
    bool sck() { return board_->rootp->rtlstm_board__DOT__logic__DOT__usrmclk__DOT__clock; }

    void listen() {
        const bool bclk = board_->mic_bclk;
        if (bclk == bclk_) return;
        bclk_ = bclk;
        if (bclk) {
            if (bit_ == 24 && !ws_ && (sample_ + 1) % each_ == 0) heard_[sample_ / each_] = cycle_;
            if (board_->mic_ws != ws_) {
                ws_ = board_->mic_ws;
                bit_ = 0;
                sample_ += !ws_;
            }
            return;
        }
        const int32_t sample = sample_ < count_ ? samples_[sample_] : 0;
        board_->mic_sd = bit_ < 24 && ((ws_ ? ~sample : sample) >> (23 - bit_) & 1);
        ++bit_;
    }

    void read() {
        const bool clock = sck();
        if (board_->flash_cs) {
            asked_ = 0;
        } else if (clock && !sck_) {
            if (asked_ < 32) command_ = command_ << 1 | board_->flash_copi, ++asked_;
            if (asked_ == 32) ++asked_, position_ = static_cast<int64_t>(command_ & 0xffffff) * 8;
        } else if (!clock && sck_ && asked_ > 32) {
            const size_t byte = position_ / 8;
            const uint8_t value = command_ >> 24 == 3 && byte < memory_.size() ? memory_[byte] : 0xff;
            board_->flash_cipo = value >> (7 - position_ % 8) & 1;
            ++position_;
        }
        sck_ = clock;
    }

    VerilatedContext context_;
    std::unique_ptr<Vcore> board_;
    std::vector<uint8_t> memory_;
    const int32_t* samples_ = nullptr;
    uint8_t* said_ = nullptr;
    int64_t *heard_ = nullptr, *changed_ = nullptr;
    int64_t count_ = 0, each_ = 1, steps_ = 0, cycle_ = 0, sample_ = -1, position_ = 0;
    uint32_t command_ = 0;
    int bit_ = 99, asked_ = 0;
    bool bclk_ = false, ws_ = true, sck_ = false, step_ = false;
};

}  // namespace

#define RTLSTM_API extern "C" __attribute__((visibility("default")))

RTLSTM_API void* rtlstm_create(uint64_t seed) { return new Board(seed); }

RTLSTM_API void rtlstm_destroy(void* board) { delete static_cast<Board*>(board); }

RTLSTM_API void rtlstm_flash(void* board, const uint8_t* bytes, int64_t count, int64_t address) {
    static_cast<Board*>(board)->flash(bytes, count, address);
}

RTLSTM_API void rtlstm_begin(void* board, const int32_t* samples, int64_t count, int64_t each, uint8_t* said,
                             int64_t* heard, int64_t* changed) {
    static_cast<Board*>(board)->begin(samples, count, each, said, heard, changed);
}

RTLSTM_API int64_t rtlstm_run(void* board, int64_t cycles) { return static_cast<Board*>(board)->run(cycles); }

RTLSTM_API int64_t rtlstm_cycle(void* board) { return static_cast<Board*>(board)->cycle(); }

RTLSTM_API int rtlstm_leds(void* board) { return static_cast<Board*>(board)->leds(); }
