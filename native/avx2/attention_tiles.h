// The micro-kernel of both products of attention, for AVX2 with FMA and F16C.
//
// A tile of H vectors by J columns of 8 keeps its H * J sums in registers while one of the two factors is
// broadcast and the other, the cache's, is loaded 8 wide.
//   scores: H queries against the J * 8 keys of a block, a step for each of the key_dim
//   values: H rows of weights against J * 8 value components, a step for each key that the row sees
// An FMA takes 4 cycles and two start in each, so a tile wants 8 sums or more, and has 16 registers. With J =
// 4 a step of f16 is one cache line and one conversion serves H <= 3 vectors; with f32, 6 x 2 is a little
// faster.
//
// In an unnamed namespace: every file that includes this has its own copy, so none can be linked into code
// for less.
#pragma once

#include <immintrin.h>

#include "types.h"

namespace edgewise::avx2 {
namespace {

constexpr int64_t kLane = 8;

inline __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 load8(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// What a product does with its sums: scores are scaled and stored, values go on from what the rows of c hold.
enum class Mode { Scores, Values };

template <class Source>
struct Product {
    const float* const* a;  // rows of factors, one for each vector, read from a_begin on
    int64_t a_begin;
    const Source* b;  // [n][columns], `stride` from step to step
    int64_t stride;
    int64_t n;        // steps
    float* const* c;  // rows of results, one for each vector, from c_begin on
    int64_t c_begin;
    float scale;
    const uint16_t* next;  // the block read after this one: fetched meanwhile where b is the cache itself
};

// Tiles of H vectors by J columns of 8, over columns [begin, end). Returns where fetching got to.
// Left alone, gcc 12 keeps the sums in memory (hence the unrolling is spelled out) or, inlined, the pointers
// (hence it is not).
template <int H, int J, Mode mode, class Source>
[[gnu::noinline]] const char* tiles(const Product<Source>& p, int64_t vector, int64_t begin, int64_t end,
                                    const char* next) {
    const float* a[H];
    float* c[H];
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
        a[h] = p.a[vector + h] + p.a_begin;
        c[h] = p.c[vector + h] + p.c_begin;
    }
    const int64_t n = p.n, stride = p.stride;
    const __m256 scale = _mm256_set1_ps(p.scale);
    for (int64_t column = begin; column < end; column += J * kLane) {
        __m256 sum[H][J];
#pragma GCC unroll 8
        for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
            for (int j = 0; j < J; ++j) {
                sum[h][j] =
                    mode == Mode::Scores ? _mm256_setzero_ps() : _mm256_loadu_ps(c[h] + column + j * kLane);
            }
        }
        const Source* b = p.b + column;
        for (int64_t i = 0; i < n; ++i, b += stride) {
            if constexpr (sizeof(Source) == 2) {
                _mm_prefetch(next, _MM_HINT_T0);
                next += 16 * J;  // as many bytes as the step reads
            }
            if constexpr (H <= 3) {
                __m256 factor[H];
#pragma GCC unroll 8
                for (int h = 0; h < H; ++h) factor[h] = _mm256_broadcast_ss(a[h] + i);
#pragma GCC unroll 4
                for (int j = 0; j < J; ++j) {
                    const __m256 column8 = load8(b + j * kLane);
#pragma GCC unroll 8
                    for (int h = 0; h < H; ++h) sum[h][j] = _mm256_fmadd_ps(factor[h], column8, sum[h][j]);
                }
            } else {
                __m256 columns8[J];
#pragma GCC unroll 4
                for (int j = 0; j < J; ++j) columns8[j] = load8(b + j * kLane);
#pragma GCC unroll 8
                for (int h = 0; h < H; ++h) {
                    const __m256 factor = _mm256_broadcast_ss(a[h] + i);
#pragma GCC unroll 4
                    for (int j = 0; j < J; ++j) sum[h][j] = _mm256_fmadd_ps(factor, columns8[j], sum[h][j]);
                }
            }
        }
#pragma GCC unroll 8
        for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
            for (int j = 0; j < J; ++j) {
                __m256 value = mode == Mode::Scores ? _mm256_mul_ps(sum[h][j], scale) : sum[h][j];
                _mm256_storeu_ps(c[h] + column + j * kLane, value);
            }
        }
    }
    return next;
}

template <int H, Mode mode, class Source>
void tile_row(const Product<Source>& p, int64_t vector, int64_t columns) {
    constexpr int64_t J = H <= 3 ? 4 : 2, kWidth = J * kLane;
    const char* next = reinterpret_cast<const char*>(p.next);
    const int64_t whole = columns & ~(kWidth - 1);
    next = tiles<H, J, mode>(p, vector, 0, whole, next);
    if (whole == columns) return;
    int64_t half = whole;
    if constexpr (J == 4) {
        half = columns & ~(2 * kLane - 1);
        if (whole < half) next = tiles<H, 2, mode>(p, vector, whole, half, next);
    }
    if (half < columns) tiles<H, 1, mode>(p, vector, half, columns, next);
}

template <int H, Mode mode, class Source>
void tile_rest(const Product<Source>& p, int64_t vector, int64_t vectors, int64_t columns) {
    if constexpr (H > 0) {
        if (vectors == H) return tile_row<H, mode>(p, vector, columns);
        tile_rest<H - 1, mode>(p, vector, vectors, columns);
    }
}

// Vectors [begin, end) by all columns.
template <Mode mode>
void multiply(const Product<uint16_t>& p, int64_t begin, int64_t end, int64_t columns) {
    for (; end - begin == 3 || end - begin > 4; begin += 3) tile_row<3, mode>(p, begin, columns);
    for (; end - begin >= 2; begin += 2) tile_row<2, mode>(p, begin, columns);  // 4 = 2 + 2
    if (begin < end) tile_row<1, mode>(p, begin, columns);
}

template <Mode mode>
void multiply(const Product<float>& p, int64_t begin, int64_t end, int64_t columns) {
    for (; begin + 6 <= end; begin += 6) tile_row<6, mode>(p, begin, columns);
    tile_rest<5, mode>(p, begin, end - begin, columns);
}

}  // namespace
}  // namespace edgewise::avx2
