// linear.h for F32, F16 and BF16 weights on AVX2 + FMA + F16C, layout R8.
//
// Every output is one chain of fmas, 4 cycles each on Zen 3 and two a cycle: eight chains keep both pipes
// busy. A tile is kBlocks row blocks (vectors of 8 rows) by kTokens tokens; with 2 x 6 it loads 2 + 6 vectors
// for 12 fmas and leaves four registers. One token has its chains from four row blocks.
#include <immintrin.h>

#include <algorithm>

#include "formats.h"
#include "linear.h"

namespace edgewise::avx2 {
namespace {

constexpr int64_t kLanes = 8;

template <Format F>
__m256 load_weights(const uint8_t* p) {
    if constexpr (F == Format::F32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    if constexpr (F == Format::F16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

void store_rows(__m256 acc, int64_t rows, float* y) {
    if (rows >= kLanes) return _mm256_storeu_ps(y, acc);
    alignas(32) float lanes[kLanes];
    _mm256_store_ps(lanes, acc);
    std::copy_n(lanes, rows, y);
}

// A call's constant part: the matrix from its first row block on, and the strides.
struct Call {
    const uint8_t* w;
    int64_t cols, block_bytes, rows;
    const float* x;
    int64_t x_stride;
    float* y;
    int64_t y_stride;
};

template <Format F, int kBlocks, int kTokens>
void tile(const Call& c, int64_t block, int64_t token) {
    constexpr int64_t kStep = kLanes * traits(F).bytes;
    const uint8_t* w = c.w + block * c.block_bytes;
    const float* x = c.x + token * c.x_stride;
    __m256 acc[kBlocks][kTokens];
    for (auto& row : acc)
        for (__m256& a : row) a = _mm256_setzero_ps();
    for (int64_t k = 0; k < c.cols; ++k, w += kStep) {
        __m256 weights[kBlocks];
        for (int b = 0; b < kBlocks; ++b) weights[b] = load_weights<F>(w + b * c.block_bytes);
        for (int t = 0; t < kTokens; ++t) {
            const __m256 value = _mm256_set1_ps(x[t * c.x_stride + k]);
            for (int b = 0; b < kBlocks; ++b) acc[b][t] = _mm256_fmadd_ps(weights[b], value, acc[b][t]);
        }
    }
    for (int t = 0; t < kTokens; ++t)
        for (int b = 0; b < kBlocks; ++b)
            store_rows(acc[b][t], c.rows - (block + b) * kLanes,
                       c.y + (token + t) * c.y_stride + (block + b) * kLanes);
}

// Row blocks [begin, end) for kTokens tokens, kBlocks at a time.
template <Format F, int kBlocks, int kTokens>
void strip(const Call& c, int64_t begin, int64_t end, int64_t token) {
    for (; begin + kBlocks <= end; begin += kBlocks) tile<F, kBlocks, kTokens>(c, begin, token);
    for (; begin < end; ++begin) tile<F, 1, kTokens>(c, begin, token);
}

// Four row blocks at a time meet all tokens, so that weights are read from memory once.
template <Format F>
void run(const Call& c, int64_t blocks, int64_t tokens) {
    for (int64_t begin = 0; begin < blocks; begin += 4) {
        const int64_t end = std::min(begin + 4, blocks);
        int64_t t = 0;
        for (; t + 6 <= tokens; t += 6) strip<F, 2, 6>(c, begin, end, t);
        for (; t + 2 <= tokens; t += 2) strip<F, 4, 2>(c, begin, end, t);
        if (t < tokens) strip<F, 4, 1>(c, begin, end, t);
    }
}

}  // namespace

void linear_float(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t tokens,
                  int64_t block_begin, int64_t block_end, float* y, int64_t y_stride) {
    const int64_t block_bytes = w.cols * kLanes * traits(w.format).bytes;
    const Call call{w.data + block_begin * block_bytes,
                    w.cols,
                    block_bytes,
                    w.rows - block_begin * kLanes,
                    x,
                    x_stride,
                    y,
                    y_stride};
    const int64_t blocks = block_end - block_begin;
    if (w.format == Format::F32) return run<Format::F32>(call, blocks, tokens);
    if (w.format == Format::F16) return run<Format::F16>(call, blocks, tokens);
    if (w.format == Format::BF16) return run<Format::BF16>(call, blocks, tokens);
}

}  // namespace edgewise::avx2
