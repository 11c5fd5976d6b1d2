// The honest bar for a processor: the network as a plain loop, all sizes known to the compiler, of floats
// or, with INT8, of codes and weights of eight bits.
//
// CELL (Lstm or Gru), INPUTS, UNITS and DENSE_OUTPUTS (lists with commas; -1 for no dense layer) come
// from the command line. A matrix is cut into tiles of rows, so that a tile's sums stay in registers while
// the codes go by. The recurrent product of a step is computed when the step before has ended.

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace {

// LANES rows are computed at once, GROUP columns of each. Codes are OFFSET too large, if a processor only
// multiplies codes without a sign.
#ifdef __AVX512F__
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif

typedef float Floats __attribute__((vector_size(LANES * 4), may_alias));
typedef std::int32_t Integers __attribute__((vector_size(LANES * 4), may_alias));

#ifndef INT8
constexpr const char *KERNEL = "float";
constexpr int GROUP = 1, OFFSET = 0;
typedef float Code, Weight, Sum;
typedef Floats Sums;

inline Sums dot(Sums sum, const Weight *weights, const Code *x) {
    return sum + *reinterpret_cast<const Floats *>(weights) * *x;
}
#else
typedef std::int32_t Sum;
typedef Integers Sums;

inline std::int32_t word(const void *codes) {
    std::int32_t found;
    std::memcpy(&found, codes, sizeof(found));
    return found;
}

#if defined(__AVX512VNNI__)
constexpr const char *KERNEL = "AVX-512 VNNI";
constexpr int GROUP = 4, OFFSET = 128;
typedef std::uint8_t Code;
typedef std::int8_t Weight;

inline Sums dot(Sums sum, const Weight *weights, const Code *x) {
    return (Sums)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(word(x)), _mm512_load_si512(weights));
}
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
constexpr const char *KERNEL = "AVX-VNNI";
constexpr int GROUP = 4, OFFSET = 128;
typedef std::uint8_t Code;
typedef std::int8_t Weight;

inline Sums dot(Sums sum, const Weight *weights, const Code *x) {
    const __m256i row = _mm256_load_si256(reinterpret_cast<const __m256i *>(weights));
    return (Sums)_mm256_dpbusd_avx_epi32((__m256i)sum, _mm256_set1_epi32(word(x)), row);
}
#elif defined(__AVX2__) && !defined(__AVX512F__)
// Pairs of eight bits would saturate in AVX2's sums of sixteen: both factors are widened.
constexpr const char *KERNEL = "AVX2";
constexpr int GROUP = 2, OFFSET = 0;
typedef std::int16_t Code, Weight;

inline Sums dot(Sums sum, const Weight *weights, const Code *x) {
    const __m256i row = _mm256_load_si256(reinterpret_cast<const __m256i *>(weights));
    return sum + (Sums)_mm256_madd_epi16(row, _mm256_set1_epi32(word(x)));
}
#else
constexpr const char *KERNEL = "portable C++";
constexpr int GROUP = 1, OFFSET = 0;
typedef std::int16_t Code, Weight;
typedef Weight Weights __attribute__((vector_size(LANES * sizeof(Weight)), may_alias));

inline Sums dot(Sums sum, const Weight *weights, const Code *x) {
    return sum + __builtin_convertvector(*reinterpret_cast<const Weights *>(weights), Sums) * Sum(*x);
}
#endif
#endif

typedef Code Codes __attribute__((vector_size(LANES * sizeof(Code)), may_alias));

constexpr float LARGEST = 127;
constexpr bool ROUNDED = sizeof(Code) < sizeof(float);

constexpr int up(int count, int step) { return (count + step - 1) / step * step; }

// Values for a matrix; its columns are padded.
constexpr int code_count(int values) { return up(values, 64) + 64; }

// Round a value within `range`.
inline Codes to_codes(Floats value, float range) {
#ifdef INT8
    // The sum has the rounded value in its last bits.
    const Floats magic = Floats{} + 12582912.0f;
    const Integers bits = (Integers)(value * (LARGEST / range) + magic) - (Integers)magic;
    return __builtin_convertvector(bits + OFFSET, Codes);
#else
    (void)range;
    return value;
#endif
}

// Vectors of a tile: as many as divide them, up to eight.
constexpr int tile_of(int vectors) {
    for (int tile = 8; tile > 1; --tile)
        if (vectors % tile == 0) return tile;
    return 1;
}

// GATES times ROWS x COLUMNS; each gate's rows are padded to vectors.
template <int GATES, int ROWS, int COLUMNS> struct Matrix {
    static constexpr int VECTORS = GATES * up(ROWS, LANES) / LANES, TILE = tile_of(VECTORS);
    // Short tiles sum several columns side by side: a sum waits for the one before.
    static constexpr int CHAINS = TILE > 4 ? 1 : TILE > 2 ? 2 : 4;
    static constexpr int GROUPS = up(up(COLUMNS, GROUP) / GROUP, CHAINS), STEP = LANES * GROUP;
    Weight *data;

    Matrix() {
        const std::size_t bytes = up(VECTORS * LANES * GROUPS * GROUP * sizeof(Weight), 64);
        data = static_cast<Weight *>(std::aligned_alloc(64, bytes));
        if (!data) throw std::bad_alloc();
        std::memset(data, 0, bytes);
    }
    ~Matrix() { std::free(data); }

    // Take the weights, times `scale`; `start` is what their sums begin with.
    void load(const float *weights, float scale, Sum *start) {
        for (int row = 0; row < GATES * ROWS; ++row)
            for (int column = 0; column < COLUMNS; ++column) {
                const int padded = row / ROWS * up(ROWS, LANES) + row % ROWS, vector = padded / LANES;
                const std::size_t before = std::size_t(vector / TILE) * GROUPS + column / GROUP;
                const float value = *weights++ * scale;
                const Weight weight = ROUNDED ? Weight(std::lrint(value)) : Weight(value);
                data[(before * TILE + vector % TILE) * STEP + padded % LANES * GROUP + column % GROUP] = weight;
                start[padded] -= OFFSET * weight;
            }
    }

    // sums = start + matrix * x
    void multiply(const Code *x, const Sum *start, Sum *sums) const {
        const Weight *weights = data;
        for (int first = 0; first < VECTORS; first += TILE) {
            Sums sum[CHAINS][TILE] = {};
            const Sums *in = reinterpret_cast<const Sums *>(start) + first;
            Sums *out = reinterpret_cast<Sums *>(sums) + first;
#pragma GCC unroll 8
            for (int index = 0; index < TILE; ++index) sum[0][index] = in[index];
            for (int group = 0; group < GROUPS; group += CHAINS) {
#pragma GCC unroll 4
                for (int chain = 0; chain < CHAINS; ++chain)
#pragma GCC unroll 8
                    for (int index = 0; index < TILE; ++index, weights += STEP)
                        sum[chain][index] = dot(sum[chain][index], weights, x + (group + chain) * GROUP);
            }
#pragma GCC unroll 8
            for (int index = 0; index < TILE; ++index) {
#pragma GCC unroll 4
                for (int chain = 1; chain < CHAINS; ++chain) sum[0][index] += sum[chain][index];
                out[index] = sum[0][index];
            }
        }
    }
};

float largest(const float *values, int count) {
    float found = 1e-30f;
    for (int index = 0; index < count; ++index) found = std::fmax(found, std::fabs(values[index]));
    return found;
}

// What weights are multiplied by, so that the largest of them is the largest code.
float scale_of(float largest_weight) { return ROUNDED ? LARGEST / largest_weight : 1; }

Sum to_sum(float value) { return ROUNDED ? Sum(std::lrint(value)) : Sum(value); }

// A function's value as numerator and denominator: products of functions then take one division.
struct Fraction {
    Floats over, under;
};

// tanh as Lambert's continued fraction, cut off where it is within 2e-4.
inline Fraction tanh_of(Floats x) {
    const Floats limit = Floats{} + 4.97f;
    x = x < -limit ? -limit : x;
    x = x > limit ? limit : x;
    const Floats s = x * x;
    return {x * (135135.0f + s * (17325.0f + s * (378.0f + s))),
            135135.0f + s * (62370.0f + s * (3150.0f + s * 28.0f))};
}

inline Fraction sigmoid_of(Floats x) {
    const Fraction half = tanh_of(0.5f * x);
    return {0.5f * (half.under + half.over), half.under};
}

template <int GATES, int I, int H> struct Recurrent {
    static constexpr int OUTPUTS = H, ROWS = up(H, LANES);
    Matrix<GATES, H, I> w_ih;
    Matrix<GATES, H, H> w_hh;
    alignas(64) Sum bias_x[GATES * ROWS] = {}, bias_h[GATES * ROWS] = {};
    alignas(64) Sum of_x[GATES * ROWS], of_h[GATES * ROWS];
    alignas(64) float h[ROWS] = {};
    alignas(64) Code codes[code_count(ROWS)];
    float scale;

    // Inputs and h are within 1. Behind the matrices are so many vectors of biases, of x and then of h.
    const float *load(const float *weights, int biases) {
        const int of_input = GATES * H * I, all = of_input + GATES * H * H;
        const float by = scale_of(largest(weights, all)), range = ROUNDED ? LARGEST : 1;
        scale = 1 / (by * range);
        w_ih.load(weights, by, bias_x);
        w_hh.load(weights + of_input, by, bias_h);
        weights += all;
        for (int number = 0; number < biases; ++number)
            for (int row = 0; row < GATES * H; ++row)
                (number ? bias_h : bias_x)[row / H * ROWS + row % H] += to_sum(*weights++ * by * range);
        for (Code &code : codes) code = OFFSET;
        prepare();
        return weights;
    }

    // Compute what the next step needs of h.
    void prepare() { w_hh.multiply(codes, bias_h, of_h); }

    Floats read(const Sum *sums, int gate, int unit) const {
        const Sums sum = *reinterpret_cast<const Sums *>(sums + gate * ROWS + unit);
        return __builtin_convertvector(sum, Floats) * scale;
    }

    void keep(int unit, Floats value) {
        *reinterpret_cast<Floats *>(h + unit) = value;
        *reinterpret_cast<Codes *>(codes + unit) = to_codes(value, 1);
    }
};

template <int I, int H> struct Lstm : Recurrent<4, I, H> {
    alignas(64) float c[up(H, LANES)] = {};

    // Both products have one sum, which begins with the biases of both.
    const float *load(const float *weights) {
        weights = Recurrent<4, I, H>::load(weights, 1);
        for (int row = 0; row < 4 * this->ROWS; ++row) this->bias_h[row] += this->bias_x[row];
        this->prepare();
        return weights;
    }

    const Code *step(const Code *x) {
        this->w_ih.multiply(x, this->of_h, this->of_x);
        for (int unit = 0; unit < H; unit += LANES) {
            auto sum = [&](int gate) { return this->read(this->of_x, gate, unit); };
            const Fraction i = sigmoid_of(sum(0)), f = sigmoid_of(sum(1)), g = tanh_of(sum(2));
            const Fraction o = sigmoid_of(sum(3));
            Floats &cell = *reinterpret_cast<Floats *>(c + unit);
            const Floats under = i.under * g.under;
            cell = (f.over * cell * under + i.over * g.over * f.under) / (f.under * under);
            const Fraction output = tanh_of(cell);
            this->keep(unit, o.over * output.over / (o.under * output.under));
        }
        return this->codes;
    }
};

// The reset gate comes after the product, as in PyTorch.
template <int I, int H> struct Gru : Recurrent<3, I, H> {
    const float *load(const float *weights) { return Recurrent<3, I, H>::load(weights, 2); }

    const Code *step(const Code *x) {
        this->w_ih.multiply(x, this->bias_x, this->of_x);
        for (int unit = 0; unit < H; unit += LANES) {
            auto of_x = [&](int gate) { return this->read(this->of_x, gate, unit); };
            auto of_h = [&](int gate) { return this->read(this->of_h, gate, unit); };
            const Fraction r = sigmoid_of(of_x(0) + of_h(0)), z = sigmoid_of(of_x(1) + of_h(1));
            const Fraction n = tanh_of(of_x(2) + r.over / r.under * of_h(2));
            const Floats old = *reinterpret_cast<const Floats *>(this->h + unit);
            this->keep(unit, (n.over * z.under + z.over * (old * n.under - n.over)) / (n.under * z.under));
        }
        return this->codes;
    }
};

template <int I, int O, bool RELU> struct Dense {
    static constexpr int OUTPUTS = O, ROWS = up(O, LANES);
    Matrix<1, O, I> weight;
    alignas(64) Sum bias[ROWS] = {}, sums[ROWS];
    alignas(64) float values[ROWS];
    alignas(64) Code codes[code_count(ROWS)] = {};
    float scale, range;

    // The inputs are within ranges[0]; what is beyond ranges[1] is the next layer's largest input.
    const float *load(const float *weights, const float *ranges) {
        const float by = scale_of(largest(weights, O * I)), per_code = ROUNDED ? LARGEST / ranges[0] : 1;
        scale = 1 / (by * per_code);
        range = ranges[1];
        weight.load(weights, by, bias);
        weights += O * I;
        for (int row = 0; row < O; ++row) bias[row] += to_sum(*weights++ * by * per_code);
        return weights;
    }

    const Code *step(const Code *x) {
        weight.multiply(x, bias, sums);
        for (int row = 0; row < O; row += LANES) {
            Floats found = __builtin_convertvector(*reinterpret_cast<Sums *>(sums + row), Floats) * scale;
            if (RELU) {
                found = found > 0.0f ? found : Floats{};
                const Floats limit = Floats{} + range;
                *reinterpret_cast<Codes *>(codes + row) = to_codes(found > limit ? limit : found, range);
            }
            *reinterpret_cast<Floats *>(values + row) = found;
        }
        return codes;
    }
};

template <int I, int... O> struct DenseChain {
    static constexpr int OUTPUTS = I;
    const float *load(const float *weights, const float *) { return weights; }
    const float *step(const Code *, const float *values) { return values; }
};

template <int I, int O, int... REST> struct DenseChain<I, O, REST...> {
    Dense<I, O, (sizeof...(REST) > 0)> layer;
    DenseChain<O, REST...> rest;
    static constexpr int OUTPUTS = decltype(rest)::OUTPUTS;
    const float *load(const float *weights, const float *ranges) {
        return rest.load(layer.load(weights, ranges), ranges + 1);
    }
    const float *step(const Code *x, const float *) {
        const Code *codes = layer.step(x);
        return rest.step(codes, layer.values);
    }
};

template <int I> struct DenseChain<I, -1> : DenseChain<I> {};

template <int I, int... H> struct Network {
    DenseChain<I, DENSE_OUTPUTS> rest;
    static constexpr int OUTPUTS = decltype(rest)::OUTPUTS;
    const float *load(const float *weights, const float *ranges) { return rest.load(weights, ranges); }
    const float *step(const Code *x, const float *values) { return rest.step(x, values); }
    void prepare() {}
};

template <int I, int H, int... REST> struct Network<I, H, REST...> {
    CELL<I, H> layer;
    Network<H, REST...> rest;
    static constexpr int OUTPUTS = decltype(rest)::OUTPUTS;
    const float *load(const float *weights, const float *ranges) {
        return rest.load(layer.load(weights), ranges);
    }
    const float *step(const Code *x, const float *) {
        const Code *codes = layer.step(x);
        return rest.step(codes, layer.h);
    }
    void prepare() {
        layer.prepare();
        rest.prepare();
    }
};

using Model = Network<INPUTS, UNITS>;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The least time that two readings of the clock are apart.
double clock_seconds() {
    double least = 1;
    for (int round = 0; round < 1000; ++round) {
        const double before = now();
        least = std::fmin(least, now() - before);
    }
    return least;
}

} // namespace

extern "C" {

const char *loop_kernel() { return KERNEL; }

// Weights: layer by layer, matrices row by row, then the biases. Ranges: the largest input of each dense
// layer, and its largest output.
void *loop_create(const float *weights, const float *ranges) {
    Model *model = new Model;
    model->load(weights, ranges);
    return model;
}

void loop_destroy(void *model) { delete static_cast<Model *>(model); }

// Steps over x (rows x INPUTS, within 1), again from its start where it ends; the last `kept` outputs go to
// y. Returns the seconds; inputs were made codes before. Each step's own go to `seconds` if it is given, and
// to `ready` those between its input and its output alone, when the recurrent product is there.
double loop_run(void *opaque, const float *x, long rows, long steps, float *y, long kept, double *seconds,
                double *ready) {
    Model &model = *static_cast<Model *>(opaque);
    constexpr int STRIDE = code_count(INPUTS);
    Code *codes = static_cast<Code *>(std::aligned_alloc(64, up(rows * STRIDE * sizeof(Code), 64)));
    if (!codes) throw std::bad_alloc();
    for (long row = 0; row < rows; ++row)
        for (int first = 0; first < STRIDE; first += LANES) {
            Floats values = {};
            for (int lane = 0; lane < LANES && first + lane < INPUTS; ++lane)
                values[lane] = x[row * INPUTS + first + lane];
            *reinterpret_cast<Codes *>(codes + row * STRIDE + first) = to_codes(values, 1);
        }
    const double of_clock = clock_seconds(), begin = now();
    double before = begin;
    for (long step = 0; step < steps; ++step) {
        if (ready) before = now();
        const float *out = model.step(codes + step % rows * STRIDE, nullptr);
        if (ready) ready[step] = std::fmax(0, now() - before - of_clock);
        model.prepare();
        if (step >= steps - kept)
            std::memcpy(y + (step - (steps - kept)) * Model::OUTPUTS, out, sizeof(float) * Model::OUTPUTS);
        if (seconds) {
            const double after = now();
            seconds[step] = std::fmax(0, after - before - of_clock);
            before = after;
        }
    }
    const double total = now() - begin;
    std::free(codes);
    return total;
}
}
