// One to eight tokens times quantised rows: weights in registers, activations broadcast from memory.
//
// A group of 8 rows is unpacked into eight registers and meets every token. With one token it is a stream of
// weights that must never stop. At 20 GB/s and 3 GHz the 128 to 272 bytes of a group of 256 weights arrive
// every 20 to 40 cycles; unpacking and multiplying them takes 14 (4 bits) to 26 (8 bits) on Zen 3, so memory
// is the limit and arithmetic only has to stay out of its way. Row blocks and their groups are one ascending
// stream.
//
// Activations are the signed operand of vpmaddubsw, codes the unsigned one; |x| <= 127 bounds how many quads
// add up in i16 before they must be widened:
//   4 bits   8 quads, 16 * 15 * 127 = 30480
//   5 bits   4 quads, 8 * 31 * 127 = 31496
//   6 bits   2 quads, 4 * 63 * 127 = 32004; the widening vpmaddwd multiplies by the half's scale at no cost
//   8 bits   not even one (2 * 255 * 127): the two nibbles of code + 128 go separate ways of 8 quads each
#include <algorithm>

#include "avx2/linear_group.h"
#include "avx2/linear_parts.h"

namespace edgewise::avx2 {
namespace {

constexpr int64_t kPrefetch = 1600;  // bytes ahead: some 80 ns at 20 GB/s, the latency of memory

// The sum of i16 pairs of kQuads quads of codes times activations, as a tree of few registers.
template <int kQuads>
EDGEWISE_INLINE __m256i pair_sums(const __m256i* codes, const int8_t* x) {
    if constexpr (kQuads == 1) return _mm256_maddubs_epi16(codes[0], broadcast(x));
    constexpr int kHalf = kQuads / 2;
    __m256i a = pair_sums<kHalf>(codes, x);
    if constexpr (kHalf > 1) keep(a);
    __m256i b = pair_sums<kHalf>(codes + kHalf, x + 4 * kHalf);
    if constexpr (kHalf > 1) keep(b);
    return add16(a, b);
}

template <Format F>
EDGEWISE_INLINE __m256i dot(const __m256i (&v)[kVectors<F>], const int8_t* x, __m256i half_scales) {
    constexpr int kBits = traits(F).bits;
    const __m256i ones = _mm256_set1_epi16(1);
    if constexpr (kBits == 4) return _mm256_madd_epi16(pair_sums<8>(v, x), ones);
    if constexpr (kBits == 5)
        return add32(_mm256_madd_epi16(pair_sums<4>(v, x), ones),
                     _mm256_madd_epi16(pair_sums<4>(v + 4, x + 16), ones));
    if constexpr (kBits == 8)
        return add32(_mm256_madd_epi16(pair_sums<8>(v, x), ones),
                     _mm256_madd_epi16(pair_sums<8>(v + 8, x), _mm256_set1_epi16(16)));
    const __m256i first = first_halves(half_scales), second = second_halves(half_scales);
    return add32(add32(_mm256_madd_epi16(pair_sums<2>(v, x), first),
                       _mm256_madd_epi16(pair_sums<2>(v + 2, x + 8), first)),
                 add32(_mm256_madd_epi16(pair_sums<2>(v + 4, x + 16), second),
                       _mm256_madd_epi16(pair_sums<2>(v + 6, x + 24), second)));
}

// What one group of 8 rows brings to every token.
template <Format F>
struct Group {
    static constexpr FormatTraits kTraits = traits(F);

    __m256i codes[kVectors<F>], half_scales;
    __m256 scale, minimum;

    EDGEWISE_INLINE Group(const BlockScales<F>& scales, const uint8_t* group, int64_t g) {
        read_codes<F>(group, codes);
        scale = scales.group_scale(g);
        if constexpr (kTraits.minimum) minimum = scales.group_minimum(g);
        if constexpr (F == Format::Q6_K) half_scales = scales.half_scales(g);
    }

    // acc plus the group times one cell of x.
    EDGEWISE_INLINE __m256 add(const TokenBlock& x, int64_t cell, int32_t correction, __m256 acc) const {
        __m256i i = dot<F>(codes, x.codes + cell * kGroup, half_scales);
        if constexpr (F == Format::Q6_K) {
            const __m256i offsets = _mm256_slli_epi16(half_scales, 5);
            i = _mm256_sub_epi32(i, _mm256_madd_epi16(offsets, broadcast(x.sums + 2 * cell)));
        } else if constexpr (!kTraits.minimum) {
            i = _mm256_sub_epi32(i, _mm256_set1_epi32(correction));
        }
        acc =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[cell])), acc);
        if constexpr (kTraits.minimum)
            acc = _mm256_fmadd_ps(minimum, _mm256_castsi256_ps(_mm256_set1_epi32(correction)), acc);
        return acc;
    }
};

template <Format F, int kTokens>
EDGEWISE_INLINE void row_block(const uint8_t* w, int64_t groups, const TokenBlock& x,
                               __m256 (&acc)[kTokens]) {
    constexpr PackedBlock kAt = packed_block(F, kLanes);
    alignas(32) int32_t corrections[kChunk * kTokens];
    BlockScales<F> scales;
    for (__m256& a : acc) a = _mm256_setzero_ps();
    for (int64_t first = 0; first < groups; first += kBlockGroups<F>, w += kAt.bytes) {
        const int64_t in_chunk = first % kChunk, cell = first * kTokens;
        if (F != Format::Q6_K && in_chunk == 0)
            read_corrections<F>(x.scales + cell, x.sums + 2 * cell, kChunk * kTokens, corrections);
        scales.read(w);
        for (int64_t g = 0; g < kBlockGroups<F>; ++g) {
            const uint8_t* bytes = w + kAt.groups + g * kAt.group_bytes;
            prefetch(bytes + kPrefetch, kAt.bytes / kBlockGroups<F>);
            const Group<F> group(scales, bytes, g);
#pragma GCC unroll 8
            for (int t = 0; t < kTokens; ++t)
                acc[t] =
                    group.add(x, cell + g * kTokens + t, corrections[(in_chunk + g) * kTokens + t], acc[t]);
        }
    }
}

template <Format F, int kTokens>
void multiply(const uint8_t* w, int64_t cols, int64_t rows, int64_t blocks, const TokenBlock& x, float* y,
              int64_t y_stride) {
    const int64_t block_bytes = cols / traits(F).cols * packed_block(F, kLanes).bytes;
    for (int64_t b = 0; b < blocks; ++b) {
        __m256 acc[kTokens];
        row_block<F, kTokens>(w + b * block_bytes, cols / kGroup, x, acc);
        for (int t = 0; t < kTokens; ++t)
            store_rows(acc[t], rows - b * kLanes, y + t * y_stride + b * kLanes);
    }
}

// multiply for as many tokens as x has.
template <Format F, int kTokens = 1>
void multiply_all(const uint8_t* w, int64_t cols, int64_t rows, int64_t blocks, const TokenBlock& x, float* y,
                  int64_t y_stride) {
    if (x.tokens == kTokens) return multiply<F, kTokens>(w, cols, rows, blocks, x, y, y_stride);
    if constexpr (kTokens < kFewTokens) multiply_all<F, kTokens + 1>(w, cols, rows, blocks, x, y, y_stride);
}

}  // namespace

void linear_few(Format format, const uint8_t* w, int64_t cols, int64_t rows, int64_t blocks,
                const TokenBlock& x, float* y, int64_t y_stride) {
    with_format(format, [&]<Format F>() { multiply_all<F>(w, cols, rows, blocks, x, y, y_stride); });
}

}  // namespace edgewise::avx2
