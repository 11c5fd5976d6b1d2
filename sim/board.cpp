// A board's top level, translated by Verilator, behind a thin C interface: its clock pin toggles, its PLL
// runs at the ratio that the cell's parameters make, and its serial port is a stream of bytes.
//
// The ports are clk, rx, tx and, as far as the board has them, led0 to led2 and button; the PLL's model is
// rtlstm_pll_model. Time is in femtoseconds since power came up.
//
// With RTLSTM_ETHERNET there is an RGMII in place of the serial port, and a second PLL. What is sent is a
// frame from its preamble to its checksum, and what is received are such frames, with two bytes of their
// length before each. With RTLSTM_SPI there are the wires of SPI, and a host that exchanges bytes while it has
// some to send, or the board has. It leaves out zeros that follow one another: the board fills pauses with them.
// With RTLSTM_RAW_SPI it also makes transfers with the wire that selects the raw mode.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "Vcore.h"
#include "Vcore___024root.h"
#include "verilated.h"

#ifdef RTLSTM_RAW_SPI
#define RTLSTM_SPI
#endif

namespace {

constexpr int64_t kSecond = 1'000'000'000'000'000;
constexpr int64_t kNever = INT64_MAX;

class Board {
public:
    Board(uint64_t seed, int64_t sourceHz, int64_t baud) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed));
        board_ = std::make_unique<Vcore>(&context_, "board");
        board_->clk = 0;
#ifdef RTLSTM_ETHERNET
        board_->eth_rx_clk = 0;
        networkOscillator() = 0;
        putNibble(0, false);
#elif defined(RTLSTM_SPI)
        board_->spi_sck = board_->spi_mosi = 0;
        board_->spi_cs_n = 1;
#ifdef RTLSTM_RAW_SPI
        board_->spi_raw_cs_n = 1;
#endif
#else
        board_->rx = 1;
#endif
#ifdef RTLSTM_BUTTON
        board_->button = RTLSTM_BUTTON;
#endif
        oscillator() = 0;
        board_->eval();
        halfSource_ = kSecond / 2 / sourceHz;
        halfClock_ = halfPeriod(sourceHz, multiply(), divide());
#ifdef RTLSTM_ETHERNET
        halfNetwork_ = halfPeriod(sourceHz, networkMultiply(), networkDivide());
        nextNetwork_ = halfNetwork_ / 3;
        nextEdge_ = kHalfEdge / 2;
#endif
        clockHz_ = static_cast<double>(sourceHz) * multiply() / divide();
        bit_ = kSecond / baud;
        nextSource_ = halfSource_;
        nextClock_ = halfClock_;
    }
    ~Board() { board_->final(); }

#ifdef RTLSTM_ETHERNET
    void send(const uint8_t* bytes, int64_t count) { frames_.emplace_back(bytes, bytes + count); }

    // The cable is pulled: what is on the way is lost, perhaps in the middle of a frame.
    void cut() {
        frames_.clear();
        received_.clear();
        coming_.clear();
        frame_.clear();
        gap_ = kGap;
    }

    int64_t pending() const { return static_cast<int64_t>(frames_.size() + !frame_.empty()); }
    int64_t frameIn() const { return frameIn_; }
    int64_t frameOut() const { return frameOut_; }
#else
    void send(const uint8_t* bytes, int64_t count) {
#ifndef RTLSTM_SPI
        if (pending() == 0) selected_ = now_;
#endif
        sending_.insert(sending_.end(), bytes, bytes + count);
    }

    // The cable is pulled: what is on the way is lost, perhaps in the middle of a byte.
    void cut() {
        sending_.clear();
        received_.clear();
#ifdef RTLSTM_SPI
        board_->spi_cs_n = 1;
        board_->spi_sck = 0;
#else
        board_->rx = 1;
#endif
        left_ = 0;
        nextSend_ = now_ + 10 * bit_;
    }

    int64_t pending() const { return static_cast<int64_t>(sending_.size()) + (nextSend_ != kNever); }
    int64_t frameIn() const { return selected_; }
    int64_t frameOut() const { return lastReceived_; }
#endif

    // Runs so many of the core's cycles, or fewer if bytes have come and the board pauses after them.
    int64_t run(int64_t cycles, uint8_t* bytes, int64_t room) {
        const int64_t end = cycle_ + cycles;
        while (cycle_ < end && !(!received_.empty() && rests())) step();
        int64_t count = 0;
        for (; count < room && !received_.empty(); ++count) {
            bytes[count] = received_.front();
            received_.pop_front();
        }
        return count;
    }

#ifdef RTLSTM_RAW_SPI
    // Makes a raw transfer of so many bits, perhaps not of whole bytes, and puts what comes in their place. Returns
    // the time from the selection to the end of the last bit.
    int64_t transfer(uint8_t* bytes, int64_t bits) {
        raw_.assign(bytes, bytes + (bits + 7) / 8);
        rawLeft_ = bits;
        while (rawLeft_ || !board_->spi_raw_cs_n) step();
        std::copy(raw_.begin(), raw_.end(), bytes);
        return rawEnd_ - rawBegin_;
    }
#endif

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
    static int64_t halfPeriod(int64_t sourceHz, uint32_t multiply, uint32_t divide) {
        return static_cast<int64_t>(static_cast<__int128>(kSecond) * divide / multiply / 2 / sourceHz);
    }

    // Moves time to the next thing that happens at a pin or in a PLL.
    void step() {
        now_ = std::min(std::min(nextClock_, nextSource_), lineNext());
        lineBefore();
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
        lineAfter();
    }

#ifdef RTLSTM_ETHERNET
    CData& networkOscillator() {
        return board_->rootp->rtlstm_board__DOT__network_pll__DOT__model__DOT__oscillator;
    }
    uint32_t networkMultiply() {
        return board_->rootp->rtlstm_board__DOT__network_pll__DOT__model__DOT__multiply;
    }
    uint32_t networkDivide() {
        return board_->rootp->rtlstm_board__DOT__network_pll__DOT__model__DOT__divide;
    }
    bool rests() const { return coming_.empty(); }
    int64_t lineNext() const { return std::min(nextNetwork_, nextEdge_); }

    void lineBefore() {
        edge_ = now_ == nextEdge_;
        if (edge_) {
            board_->eth_rx_clk = !board_->eth_rx_clk;
            nextEdge_ += kHalfEdge;
        }
        if (now_ == nextNetwork_) {
            networkOscillator() ^= 1;
            nextNetwork_ += halfNetwork_;
        }
    }

    void lineAfter() {
        // Data change after one edge and are read at the next.
        if (edge_) {
            if (board_->eth_rx_clk) {
                putNibble(byte_ >> 4, sends_);
            } else {
                nextByte();
                putNibble(byte_ & 15, sends_);
            }
        }
        if (board_->eth_tx_clk == txClock_) return;
        txClock_ = board_->eth_tx_clk;
        const int nibble = board_->eth_tx_data0 | board_->eth_tx_data1 << 1 | board_->eth_tx_data2 << 2 |
                           board_->eth_tx_data3 << 3;
        if (!txClock_) {
            if (comes_ && !coming_.empty()) coming_.back() |= nibble << 4;
            return;
        }
        comes_ = board_->eth_tx_ctl;
        if (comes_) {
            coming_.push_back(static_cast<uint8_t>(nibble));
        } else if (!coming_.empty()) {
            frameOut_ = now_;
            received_.push_back(coming_.size() & 255);
            received_.push_back(coming_.size() >> 8 & 255);
            received_.insert(received_.end(), coming_.begin(), coming_.end());
            coming_.clear();
        }
    }

    void putNibble(int nibble, bool valid) {
        board_->eth_rx_data0 = nibble & 1;
        board_->eth_rx_data1 = nibble >> 1 & 1;
        board_->eth_rx_data2 = nibble >> 2 & 1;
        board_->eth_rx_data3 = nibble >> 3 & 1;
        board_->eth_rx_ctl = valid;
    }

    void nextByte() {
        if (sends_ && frame_.empty()) gap_ = kGap;
        if (frame_.empty() && gap_ == 0 && !frames_.empty()) {
            frameIn_ = now_;
            frame_.assign(frames_.front().begin(), frames_.front().end());
            frames_.pop_front();
        }
        sends_ = !frame_.empty();
        // Between frames a PHY tells its state: the link is up, 1 Gbit/s, full duplex.
        byte_ = 0xdd;
        if (sends_) {
            byte_ = frame_.front();
            frame_.pop_front();
        } else if (gap_ > 0) {
            --gap_;
        }
    }
#elif defined(RTLSTM_SPI)
    bool rests() const { return board_->spi_cs_n; }
    bool wants() const { return !sending_.empty() || board_->spi_waiting || rawLeft_; }
    int64_t lineNext() {
        if (nextSend_ == kNever && wants()) nextSend_ = now_ + 1;
        return nextSend_;
    }
    void lineAfter() {}

    // Each half of a bit; the board's bit is read before the edge at which the board reads the host's.
    void lineBefore() {
        if (now_ != nextSend_) return;
        nextSend_ = now_ + bit_ / 2;
#ifdef RTLSTM_RAW_SPI
        if (board_->spi_cs_n && (rawLeft_ || !board_->spi_raw_cs_n)) return rawBit();
#endif
        if (board_->spi_cs_n) {
            if (!wants()) {
                nextSend_ = kNever;
                return;
            }
            board_->spi_cs_n = 0;
            if (!sending_.empty()) selected_ = now_;
            nextByte();
        } else if (left_ == 0) {
            board_->spi_cs_n = 1;
        } else if (!board_->spi_sck) {
            byte_ = static_cast<uint8_t>(byte_ << 1 | board_->spi_miso);
            board_->spi_sck = 1;
        } else {
            board_->spi_sck = 0;
            shift_ <<= 1;
            if (--left_ == 0) {
                if (byte_ || last_) {
                    received_.push_back(byte_);
                    lastReceived_ = now_;
                }
                last_ = byte_;
                if ((wants() && !rawLeft_) || byte_) nextByte();
            }
            board_->spi_mosi = shift_ >> 7 & 1;
        }
    }

#ifdef RTLSTM_RAW_SPI
    void rawBit() {
        const size_t bits = raw_.size() * 8, index = static_cast<size_t>(rawAt_);
        if (board_->spi_raw_cs_n) {
            board_->spi_raw_cs_n = 0;
            rawBegin_ = now_;
            rawAt_ = 0;
        } else if (rawLeft_ == 0) {
            // The board must see that the transfer has ended.
            board_->spi_raw_cs_n = 1;
            nextSend_ = now_ + 8 * bit_;
        } else if (!board_->spi_sck) {
            uint8_t& byte = raw_[index / 8];
            const int shift = 7 - index % 8;
            byte = static_cast<uint8_t>((byte & ~(1 << shift)) | board_->spi_miso << shift);
            board_->spi_sck = 1;
        } else {
            board_->spi_sck = 0;
            ++rawAt_;
            if (--rawLeft_ == 0) rawEnd_ = now_;
        }
        if (!board_->spi_raw_cs_n && !board_->spi_sck && static_cast<size_t>(rawAt_) < bits) {
            board_->spi_mosi = raw_[rawAt_ / 8] >> (7 - rawAt_ % 8) & 1;
        }
    }
#endif

    void nextByte() {
        shift_ = sending_.empty() ? 0 : sending_.front();
        if (!sending_.empty()) sending_.pop_front();
        left_ = 8;
        byte_ = 0;
        board_->spi_mosi = shift_ >> 7 & 1;
    }
#else
    bool receiving() const { return nextSample_ != kNever; }
    bool rests() const { return now_ - lastReceived_ > 3 * bit_ && !receiving(); }
    int64_t lineNext() {
        if (nextSend_ == kNever && !sending_.empty()) startSending();
        return std::min(nextSend_, nextSample_);
    }

    void lineBefore() {
        if (now_ == nextSample_) sample();
        if (now_ == nextSend_) sendBit();
    }

    void lineAfter() {
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
#endif

    VerilatedContext context_;
    std::unique_ptr<Vcore> board_;
    std::deque<uint8_t> sending_, received_;
#ifdef RTLSTM_ETHERNET
    // Half a cycle of the PHY's clock, which is 100 ppm slower than it should be, and the gap between frames.
    static constexpr int64_t kHalfEdge = 4'000'400;
    static constexpr int kGap = 12;
    std::deque<std::vector<uint8_t>> frames_;
    std::deque<uint8_t> frame_;
    std::vector<uint8_t> coming_;
    int64_t halfNetwork_ = 0, nextNetwork_ = 0, nextEdge_ = 0, frameIn_ = 0, frameOut_ = 0;
    int gap_ = kGap;
    bool edge_ = false, sends_ = false, comes_ = false;
    CData txClock_ = 0;
#endif
    int64_t now_ = 0, halfSource_ = 0, halfClock_ = 0, bit_ = 0;
    int64_t nextSource_ = 0, nextClock_ = 0, nextSend_ = kNever, nextSample_ = kNever;
    int64_t cycle_ = 0, lastReceived_ = 0, badStops_ = 0;
    double clockHz_ = 0;
    uint32_t shift_ = 0;
    int left_ = 0, samples_ = 0;
    uint8_t byte_ = 0, last_ = 0;
    int64_t selected_ = 0;
    // A raw transfer: its bytes, bits that are left and the one that is sent, and when it began and ended.
    std::vector<uint8_t> raw_;
    int64_t rawLeft_ = 0, rawAt_ = 0, rawBegin_ = 0, rawEnd_ = 0;
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

RTLSTM_API int64_t rtlstm_transfer(void* board, uint8_t* bytes, int64_t bits) {
#ifdef RTLSTM_RAW_SPI
    return static_cast<Board*>(board)->transfer(bytes, bits);
#else
    return 0;
#endif
}

RTLSTM_API int64_t rtlstm_pending(void* board) { return static_cast<Board*>(board)->pending(); }

RTLSTM_API int64_t rtlstm_cycle(void* board) { return static_cast<Board*>(board)->cycle(); }

// When the last frame to the board ended, and the last one from it began; on SPI, when the board was selected
// to be sent the last bytes, and when its last byte was read.
RTLSTM_API int64_t rtlstm_frame_in(void* board) { return static_cast<Board*>(board)->frameIn(); }

RTLSTM_API int64_t rtlstm_frame_out(void* board) { return static_cast<Board*>(board)->frameOut(); }

RTLSTM_API int64_t rtlstm_bad_stops(void* board) { return static_cast<Board*>(board)->badStops(); }

RTLSTM_API double rtlstm_clock_hz(void* board) { return static_cast<Board*>(board)->clockHz(); }

RTLSTM_API int rtlstm_leds(void* board) { return static_cast<Board*>(board)->leds(); }
