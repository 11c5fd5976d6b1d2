// The honest bar for a processor: the network as a plain float loop, all sizes known to the compiler.
//
// CELL (Lstm or Gru), INPUTS, UNITS and DENSE_OUTPUTS (lists with commas; -1 for no dense layer) come
// from the command line. Weights are transposed and cut into tiles of rows, so that a tile's sums stay in
// registers while the inputs go by.

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr int VECTOR = 8;
typedef float Vector __attribute__((vector_size(VECTOR * sizeof(float))));

constexpr int padded(int rows) { return (rows + VECTOR - 1) / VECTOR * VECTOR; }

// Vectors of a tile: as many as divide the rows, up to eight.
constexpr int tile_of(int rows) {
    for (int vectors = 8; vectors > 1; --vectors)
        if (padded(rows) % (vectors * VECTOR) == 0) return vectors;
    return 1;
}

float *allocate(std::size_t count) {
    void *memory = std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0, count * sizeof(float));
    return static_cast<float *>(memory);
}

// ROWS x COLUMNS.
template <int ROWS, int COLUMNS> struct Matrix {
    static constexpr int TILE = tile_of(ROWS);
    static constexpr int TILES = padded(ROWS) / (TILE * VECTOR);
    float *data = allocate(std::size_t(padded(ROWS)) * COLUMNS);

    ~Matrix() { std::free(data); }

    const float *load(const float *rows) {
        for (int row = 0; row < ROWS; ++row)
            for (int column = 0; column < COLUMNS; ++column) {
                const std::size_t tile = row / (TILE * VECTOR), inside = row % (TILE * VECTOR);
                data[(tile * COLUMNS + column) * TILE * VECTOR + inside] = *rows++;
            }
        return rows;
    }

    // sums += matrix * x
    void add(const float *x, float *sums) const {
        const Vector *weights = reinterpret_cast<const Vector *>(data);
        Vector *out = reinterpret_cast<Vector *>(sums);
        for (int tile = 0; tile < TILES; ++tile, out += TILE) {
            Vector sum[TILE];
#pragma GCC unroll 8
            for (int index = 0; index < TILE; ++index) sum[index] = out[index];
            for (int column = 0; column < COLUMNS; ++column, weights += TILE) {
                const float value = x[column];
#pragma GCC unroll 8
                for (int index = 0; index < TILE; ++index) sum[index] += weights[index] * value;
            }
#pragma GCC unroll 8
            for (int index = 0; index < TILE; ++index) out[index] = sum[index];
        }
    }
};

// tanh as Lambert's continued fraction, cut off where it is within 2e-4.
inline float rational_tanh(float x) {
    x = x < -4.97f ? -4.97f : x;
    x = x > 4.97f ? 4.97f : x;
    const float s = x * x;
    return x * (135135.0f + s * (17325.0f + s * (378.0f + s))) /
           (135135.0f + s * (62370.0f + s * (3150.0f + s * 28.0f)));
}

inline float rational_sigmoid(float x) { return 0.5f + 0.5f * rational_tanh(0.5f * x); }

template <int I, int H> struct Lstm {
    static constexpr int OUTPUTS = H;
    Matrix<4 * H, I> w_ih;
    Matrix<4 * H, H> w_hh;
    alignas(64) float bias[padded(4 * H)] = {};
    alignas(64) float sums[padded(4 * H)] = {};
    alignas(64) float h[H] = {};
    alignas(64) float c[H] = {};

    const float *load(const float *weights) {
        weights = w_hh.load(w_ih.load(weights));
        std::memcpy(bias, weights, sizeof(float) * 4 * H);
        return weights + 4 * H;
    }

    const float *step(const float *x) {
        std::memcpy(sums, bias, sizeof(sums));
        w_ih.add(x, sums);
        w_hh.add(h, sums);
        for (int unit = 0; unit < H; ++unit) {
            const float i = rational_sigmoid(sums[unit]), f = rational_sigmoid(sums[H + unit]);
            const float g = rational_tanh(sums[2 * H + unit]), o = rational_sigmoid(sums[3 * H + unit]);
            c[unit] = f * c[unit] + i * g;
            h[unit] = o * rational_tanh(c[unit]);
        }
        return h;
    }
};

// The reset gate comes after the product, as in PyTorch.
template <int I, int H> struct Gru {
    static constexpr int OUTPUTS = H;
    Matrix<3 * H, I> w_ih;
    Matrix<3 * H, H> w_hh;
    alignas(64) float bias_x[padded(3 * H)] = {};
    alignas(64) float bias_h[padded(3 * H)] = {};
    alignas(64) float of_x[padded(3 * H)] = {};
    alignas(64) float of_h[padded(3 * H)] = {};
    alignas(64) float h[H] = {};

    const float *load(const float *weights) {
        weights = w_hh.load(w_ih.load(weights));
        std::memcpy(bias_x, weights, sizeof(float) * 3 * H);
        std::memcpy(bias_h, weights + 3 * H, sizeof(float) * 3 * H);
        return weights + 6 * H;
    }

    const float *step(const float *x) {
        std::memcpy(of_x, bias_x, sizeof(of_x));
        std::memcpy(of_h, bias_h, sizeof(of_h));
        w_ih.add(x, of_x);
        w_hh.add(h, of_h);
        for (int unit = 0; unit < H; ++unit) {
            const float r = rational_sigmoid(of_x[unit] + of_h[unit]);
            const float z = rational_sigmoid(of_x[H + unit] + of_h[H + unit]);
            const float n = rational_tanh(of_x[2 * H + unit] + r * of_h[2 * H + unit]);
            h[unit] = n + z * (h[unit] - n);
        }
        return h;
    }
};

template <int I, int O, bool RELU> struct Dense {
    static constexpr int OUTPUTS = O;
    Matrix<O, I> weight;
    alignas(64) float bias[padded(O)] = {};
    alignas(64) float sums[padded(O)] = {};

    const float *load(const float *weights) {
        weights = weight.load(weights);
        std::memcpy(bias, weights, sizeof(float) * O);
        return weights + O;
    }

    const float *step(const float *x) {
        std::memcpy(sums, bias, sizeof(sums));
        weight.add(x, sums);
        if (RELU)
            for (int row = 0; row < O; ++row) sums[row] = sums[row] > 0 ? sums[row] : 0;
        return sums;
    }
};

template <int I, int... O> struct DenseChain {
    static constexpr int OUTPUTS = I;
    const float *load(const float *weights) { return weights; }
    const float *step(const float *x) { return x; }
};

template <int I, int O, int... REST> struct DenseChain<I, O, REST...> {
    Dense<I, O, (sizeof...(REST) > 0)> layer;
    DenseChain<O, REST...> rest;
    static constexpr int OUTPUTS = decltype(rest)::OUTPUTS;
    const float *load(const float *weights) { return rest.load(layer.load(weights)); }
    const float *step(const float *x) { return rest.step(layer.step(x)); }
};

template <int I> struct DenseChain<I, -1> : DenseChain<I> {};

template <int I, int... H> struct Network {
    DenseChain<I, DENSE_OUTPUTS> rest;
    static constexpr int OUTPUTS = decltype(rest)::OUTPUTS;
    const float *load(const float *weights) { return rest.load(weights); }
    const float *step(const float *x) { return rest.step(x); }
};

template <int I, int H, int... REST> struct Network<I, H, REST...> {
    CELL<I, H> layer;
    Network<H, REST...> rest;
    static constexpr int OUTPUTS = decltype(rest)::OUTPUTS;
    const float *load(const float *weights) { return rest.load(layer.load(weights)); }
    const float *step(const float *x) { return rest.step(layer.step(x)); }
};

using Model = Network<INPUTS, UNITS>;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace

extern "C" {

// Weights: layer by layer, matrices row by row, then the bias.
void *loop_create(const float *weights) {
    Model *model = new Model;
    model->load(weights);
    return model;
}

void loop_destroy(void *model) { delete static_cast<Model *>(model); }

// Steps over x (rows x INPUTS), again from its start where it ends; the last `kept` outputs go to y.
// Returns the seconds; each step's own go to `seconds` if it is given.
double loop_run(void *opaque, const float *x, long rows, long steps, float *y, long kept, double *seconds) {
    Model &model = *static_cast<Model *>(opaque);
    const double begin = now();
    double before = begin;
    for (long step = 0; step < steps; ++step) {
        const float *out = model.step(x + step % rows * INPUTS);
        if (step >= steps - kept)
            std::memcpy(y + (step - (steps - kept)) * Model::OUTPUTS, out, sizeof(float) * Model::OUTPUTS);
        if (seconds) {
            const double after = now();
            seconds[step] = after - before;
            before = after;
        }
    }
    return now() - begin;
}
}
