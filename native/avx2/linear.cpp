// linear.h for quantised weights on AVX2 + FMA + F16C, layout R8.
//
// Weights stay, tokens pass. A group of 32 columns of 8 rows is unpacked once into eight registers, then
// every token of the block (up to 64) meets it: 8 broadcast loads, 8 multiply-adds, 7 adds, and about 6
// operations of scaling into the token's accumulator, which lies in L1 (64 tokens * 32 bytes). So unpacking
// costs 1 / tokens, tokens do not depend on each other (the out-of-order window covers all latencies), and a
// block of activations (64 * K bytes) is read once per row block from L2. Zen 3 starts two multiply-adds and
// two vector loads a cycle: with 11 loads and 12 products per 512 operations the bound is some 6 cycles, 250
// GOP/s at 3 GHz.
//
// One token is another matter: 5 bits a weight arrive at about 7 bytes a cycle, so a group of 256 has some 25
// cycles, enough for unpacking it, and what counts is that the stream never stops. Row blocks and their
// groups are one ascending stream; kPrefetch bytes ahead covers the latency of memory at that speed.
#include "linear.h"

#include <algorithm>

#include "avx2/linear_group.h"
#include "quantized_rows.h"

namespace edgewise::avx2 {
namespace {

constexpr int64_t kChunk = 8;  // groups whose per-token corrections are computed together
constexpr int64_t kPrefetch = 1600;

// Everything of one group of 8 rows that does not depend on the token.
template <Format F>
struct GroupWeights {
    static constexpr FormatTraits kTraits = traits(F);
    static constexpr bool kHalves = F == Format::Q6_K;

    GroupCodes<F> codes;
    __m256 scale, minimum;
    __m256i half_scales[2];  // i16, both halves of every lane the same
    __m256i half_offsets;    // i16 pairs: offset * scale of the first and second half

    GroupWeights(const BlockScales<F>& scales, const uint8_t* group, int64_t g) : codes(group) {
        scale = scales.group_scale(g);
        if constexpr (kTraits.minimum) minimum = scales.group_minimum(g);
        if constexpr (kHalves) set_halves(scales.scales + g * 2 * kLanes);
    }

    void set_halves(const uint8_t* scales) {
        const __m256i pairs = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
        const __m256i high = _mm256_srli_epi32(pairs, 16), low = _mm256_slli_epi32(pairs, 16);
        half_scales[0] = _mm256_blend_epi16(pairs, low, 0xaa);
        half_scales[1] = _mm256_blend_epi16(high, pairs, 0xaa);
        half_offsets = _mm256_slli_epi16(pairs, 5);
        static_assert(!kHalves || kTraits.offset == 32);
    }
};

__m256i add16(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
__m256i add32(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }

// The sums of unsigned code times activation of kTokens tokens, in every row's lane.
template <Format F, int kTokens>
void dot(const GroupWeights<F>& w, const int8_t* x, __m256i (&sums)[kTokens]) {
    constexpr int kBits = traits(F).bits;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs[kTokens][8];
    for (int t = 0; t < kTokens; ++t)
        for (int q = 0; q < 8; ++q)
            pairs[t][q] = _mm256_maddubs_epi16(w.codes.quads[q], broadcast(x + t * kGroup + 4 * q));
    for (int t = 0; t < kTokens; ++t) {
        __m256i* p = pairs[t];
        if constexpr (kBits == 6) {
            const __m256i first = add32(_mm256_madd_epi16(add16(p[0], p[1]), w.half_scales[0]),
                                        _mm256_madd_epi16(add16(p[2], p[3]), w.half_scales[0]));
            const __m256i second = add32(_mm256_madd_epi16(add16(p[4], p[5]), w.half_scales[1]),
                                         _mm256_madd_epi16(add16(p[6], p[7]), w.half_scales[1]));
            sums[t] = add32(first, second);
            continue;
        }
        const __m256i low = add16(add16(p[0], p[1]), add16(p[2], p[3]));
        const __m256i high = add16(add16(p[4], p[5]), add16(p[6], p[7]));
        if constexpr (kBits == 5)
            sums[t] = add32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones));
        else
            sums[t] = _mm256_madd_epi16(add16(low, high), ones);
    }
    if constexpr (kBits == 8) {
        __m256i high[kTokens];
        for (int t = 0; t < kTokens; ++t) high[t] = _mm256_setzero_si256();
        for (int q = 0; q < 8; ++q)
            for (int t = 0; t < kTokens; ++t)
                high[t] =
                    add16(high[t], _mm256_maddubs_epi16(w.codes.high[q], broadcast(x + t * kGroup + 4 * q)));
        for (int t = 0; t < kTokens; ++t)
            sums[t] = add32(sums[t], _mm256_madd_epi16(high[t], _mm256_set1_epi16(16)));
    }
}

// What a token's cell adds besides the product of codes, the same for all rows: f32 scale * sum of codes for
// formats with a minimum, i32 offset * sum of codes for those with an offset. Q6_K has one offset per half
// and row instead.
template <Format F>
void corrections(const float* scales, const int16_t* sums, int64_t cells, int32_t* out) {
    constexpr FormatTraits kTraits = traits(F);
    constexpr int16_t kOffset = kTraits.minimum ? 1 : kTraits.bits == 8 ? 128 : kTraits.offset;
    if constexpr (F == Format::Q6_K) return;
    for (int64_t i = 0; i < cells; i += 8) {
        __m256i sum = _mm256_madd_epi16(load(sums + 2 * i), _mm256_set1_epi16(kOffset));
        if constexpr (kTraits.minimum)
            sum = _mm256_castps_si256(_mm256_mul_ps(_mm256_loadu_ps(scales + i), _mm256_cvtepi32_ps(sum)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), sum);
    }
}

// Adds one token's group to its accumulator, as linear.h defines.
template <Format F>
__m256 add_group(const GroupWeights<F>& w, __m256i sum, float dx, int32_t correction, const int16_t* sums,
                 __m256 acc) {
    constexpr FormatTraits kTraits = traits(F);
    if constexpr (F == Format::Q6_K)
        sum = _mm256_sub_epi32(sum, _mm256_madd_epi16(broadcast(sums), w.half_offsets));
    else if constexpr (!kTraits.minimum)
        sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(correction));
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(w.scale, _mm256_set1_ps(dx)), acc);
    if constexpr (kTraits.minimum)
        acc = _mm256_fmadd_ps(w.minimum, _mm256_castsi256_ps(_mm256_set1_epi32(correction)), acc);
    return acc;
}

void store_rows(__m256 acc, int64_t rows, float* y) {
    if (rows >= kLanes) return _mm256_storeu_ps(y, acc);
    alignas(32) float lanes[kLanes];
    _mm256_store_ps(lanes, acc);
    std::copy_n(lanes, rows, y);
}

// Calls visit(weights, g) for the groups of a row block from group `begin`, at most kChunk of them.
template <Format F, class Visit>
inline void visit_chunk(const uint8_t* row_block, int64_t begin, int64_t end, Visit visit) {
    constexpr PackedBlock kAt = packed_block(F, kLanes);
    if constexpr (traits(F).cols == 256) {
        const uint8_t* block = row_block + begin / kChunk * kAt.bytes;
        const BlockScales<F> scales(block);
        for (int64_t g = 0; g < kChunk; ++g)
            visit(GroupWeights<F>(scales, block + kAt.groups + g * kAt.group_bytes, g), begin + g);
    } else {
        for (int64_t g = begin; g < end; ++g) {
            const uint8_t* block = row_block + g * kAt.bytes;
            visit(GroupWeights<F>(BlockScales<F>(block), block + kAt.groups, 0), g);
        }
    }
}

template <Format F>
void one_token(const uint8_t* row_block, int64_t groups, const TokenBlock& x, int64_t rows, float* y) {
    constexpr int64_t kGroupBytes = packed_block(F, kLanes).bytes * kGroup / traits(F).cols;
    alignas(32) int32_t correction[kChunk];
    __m256 acc = _mm256_setzero_ps();
    for (int64_t begin = 0; begin < groups; begin += kChunk) {
        corrections<F>(x.scales + begin, x.sums + 2 * begin, kChunk, correction);
        visit_chunk<F>(
            row_block, begin, std::min(begin + kChunk, groups), [&](const GroupWeights<F>& w, int64_t g) {
                for (int64_t line = 0; line < kGroupBytes; line += 64)
                    _mm_prefetch(
                        reinterpret_cast<const char*>(row_block + g * kGroupBytes + line + kPrefetch),
                        _MM_HINT_T0);
                __m256i sum[1];
                dot<F, 1>(w, x.codes + g * kGroup, sum);
                acc = add_group<F>(w, sum[0], x.scales[g], correction[g - begin], x.sums + 2 * g, acc);
            });
    }
    store_rows(acc, rows, y);
}

template <Format F>
void many_tokens(const uint8_t* row_block, int64_t groups, const TokenBlock& x, int64_t tokens, int64_t rows,
                 float* y, int64_t y_stride) {
    constexpr int kTile = traits(F).bits == 8 ? 2 : 1;  // two tokens share the loads of the high nibbles
    alignas(32) int32_t correction[kChunk * kTokenBlock];
    alignas(32) __m256 acc[kTokenBlock];
    std::fill_n(acc, tokens, _mm256_setzero_ps());
    for (int64_t begin = 0; begin < groups; begin += kChunk) {
        const int64_t first = begin * x.tokens;
        corrections<F>(x.scales + first, x.sums + 2 * first, kChunk * x.tokens, correction);
        visit_chunk<F>(
            row_block, begin, std::min(begin + kChunk, groups), [&](const GroupWeights<F>& w, int64_t g) {
                const int64_t row = g * x.tokens;
                const auto add = [&]<int kTokens>(int64_t t) {
                    __m256i sums[kTokens];
                    dot<F, kTokens>(w, x.codes + (row + t) * kGroup, sums);
                    for (int i = 0; i < kTokens; ++i) {
                        const int64_t cell = row + t + i;
                        acc[t + i] = add_group<F>(w, sums[i], x.scales[cell], correction[cell - first],
                                                  x.sums + 2 * cell, acc[t + i]);
                    }
                };
                int64_t t = 0;
                for (; t + kTile <= tokens; t += kTile) add.template operator()<kTile>(t);
                if constexpr (kTile > 1)
                    for (; t < tokens; ++t) add.template operator()<1>(t);
            });
    }
    for (int64_t t = 0; t < tokens; ++t) store_rows(acc[t], rows, y + t * y_stride);
}

template <Format F>
void run(const PackedMatrix& w, const QuantizedRows& x, int64_t token_begin, int64_t token_end,
         int64_t block_begin, int64_t block_end, float* y, int64_t y_stride) {
    const int64_t groups = w.cols / kGroup,
                  row_block_bytes = w.cols / traits(F).cols * packed_block(F, kLanes).bytes;
    for (int64_t begin = token_begin; begin < token_end; begin += kTokenBlock) {
        const TokenBlock tokens = token_block(x, begin / kTokenBlock);
        const int64_t n = std::min(kTokenBlock, token_end - begin);
        for (int64_t b = block_begin; b < block_end; ++b) {
            const uint8_t* row_block = w.data + b * row_block_bytes;
            const int64_t rows = std::min(kLanes, w.rows - b * kLanes);
            float* out = y + (begin - token_begin) * y_stride + (b - block_begin) * kLanes;
            if (tokens.tokens == 1)
                one_token<F>(row_block, groups, tokens, rows, out);
            else
                many_tokens<F>(row_block, groups, tokens, n, rows, out, y_stride);
        }
    }
}

}  // namespace

void linear_quantized(const PackedMatrix& w, const QuantizedRows& x, int64_t token_begin, int64_t token_end,
                      int64_t block_begin, int64_t block_end, float* y, int64_t y_stride) {
    switch (w.format) {
#define EDGEWISE_CASE(F) \
    case Format::F:      \
        return run<Format::F>(w, x, token_begin, token_end, block_begin, block_end, y, y_stride);
        EDGEWISE_CASE(Q4_0)
        EDGEWISE_CASE(Q4_1)
        EDGEWISE_CASE(Q5_0)
        EDGEWISE_CASE(Q5_1)
        EDGEWISE_CASE(Q8_0)
        EDGEWISE_CASE(Q4_K)
        EDGEWISE_CASE(Q5_K)
        EDGEWISE_CASE(Q6_K)
#undef EDGEWISE_CASE
        default:
            return;
    }
}

}  // namespace edgewise::avx2
