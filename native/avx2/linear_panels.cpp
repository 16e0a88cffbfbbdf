// Several tokens times quantised rows: activations in registers, weights from L1.
//
// A panel is one group of 32 columns of up to eight row blocks, unpacked to signed bytes in L1. Every token
// of the block brings its 32 activations as eight broadcast registers and meets the whole panel: per row
// block eight vpmaddubsw with the weights as memory operands, eight adds, and five instructions of scaling
// into an accumulator that lies in L1 too (64 tokens * 8 row blocks * 32 bytes = 16 KiB). Zen 3 executes some
// four of these instructions a cycle and loads two vectors, so instructions are what to save: holding the
// weights in registers and broadcasting activations from memory takes 36 a row block, this 25, because a
// broadcast is an instruction of its own and a memory operand is not.
//
// vpmaddubsw wants its memory operand signed and the other unsigned, so activations come as code + 128 and
// `bias`, 128 times the sum of the codes in the same i16 lane, is taken off again. i16 arithmetic wraps, so
// only the final sum has to fit, and a single vpmaddubsw must not saturate (2 * 255 * 32 = 16320 at most):
//   4 bits   16 * 15 * 127 = 30480             codes 0..15 as they are, or -8..7
//   5 bits   16 * 16 * 127 = 32512             codes -16..15; formats with a minimum get 16 * sum of x back
//   6 bits   8 * 32 * 127 = 32512              a half at a time, codes -32..31; vpmaddwd applies the half's
//   scale 8 bits   two sums of nibbles: 0..15 and -8..7, the second times 16
#include <algorithm>

#include "avx2/linear_group.h"
#include "avx2/linear_parts.h"

namespace edgewise::avx2 {
namespace {

constexpr int kMaxPanel = 8;

// Groups that the weights of each row block are fetched ahead. Eight streams that advance by a few lines in
// turn are too many and too slow for the hardware's prefetchers; with 9 tokens a group takes some 600 cycles.
constexpr int64_t kAhead = 1;

// What the signed codes of a panel lie below the unsigned ones, by vector.
template <Format F>
constexpr int code_shift(int vector) {
    constexpr FormatTraits kTraits = traits(F);
    if (kTraits.bits == 8) return vector < 8 ? 0 : 8;
    return kTraits.bits == 5 ? 16 : kTraits.offset;
}

// Formats whose shift is not their offset: i = shifted sum + 16 * sum of x.
template <Format F>
constexpr bool kGivesBack = traits(F).bits == 5 && traits(F).minimum;

// One group of `kBlocks` row blocks.
template <Format F, int kBlocks>
struct Panel {
    static constexpr FormatTraits kTraits = traits(F);
    static constexpr int kSums = kTraits.bits >= 6 ? 2 : 1;  // separate i16 sums of a row
    static constexpr int kSumVectors = kVectors<F> / kSums;

    __m256i codes[kBlocks][kVectors<F>];
    __m256i bias[kBlocks][kSums];
    __m256i half_scales[F == Format::Q6_K ? kBlocks : 1][2];
    __m256 scale[kBlocks], minimum[kBlocks];

    EDGEWISE_INLINE void read(int b, const BlockScales<F>& scales, const uint8_t* group, int64_t g) {
        scale[b] = scales.group_scale(g);
        if constexpr (kTraits.minimum) minimum[b] = scales.group_minimum(g);
        if constexpr (F == Format::Q6_K) {
            half_scales[b][0] = first_halves(scales.half_scales(g));
            half_scales[b][1] = second_halves(scales.half_scales(g));
        }
        __m256i v[kVectors<F>];
        read_codes<F>(group, v);
        for (int s = 0; s < kSums; ++s) {
            const int first = s * kSumVectors;
            __m256i sum = _mm256_setzero_si256();  // of 4 or 8 codes of at most 32 or 16: bytes hold it
            for (int i = first; i < first + kSumVectors; ++i) {
                if constexpr (code_shift<F>(kVectors<F> - 1) != 0) v[i] = _mm256_sub_epi8(v[i], shift_of(i));
                codes[b][i] = v[i];
                sum = i == first ? v[i] : _mm256_add_epi8(sum, v[i]);
            }
            bias[b][s] = _mm256_maddubs_epi16(_mm256_set1_epi8(-128), sum);
        }
    }

    EDGEWISE_INLINE static __m256i shift_of(int vector) {
        return _mm256_set1_epi8(static_cast<char>(code_shift<F>(vector)));
    }
};

// 32 codes + 128 as eight broadcast quads: two loads of 16 bytes to both halves, then shuffles within them.
EDGEWISE_INLINE void read_activations(const int8_t* x, __m256i (&quads)[8]) {
    const __m256i flip = _mm256_set1_epi8(-128);
    for (int h = 0; h < 2; ++h) {
        const __m256i v = _mm256_xor_si256(_mm256_broadcastsi128_si256(load_16_bytes(x + 16 * h)), flip);
        quads[4 * h] = _mm256_shuffle_epi32(v, 0x00);
        quads[4 * h + 1] = _mm256_shuffle_epi32(v, 0x55);
        quads[4 * h + 2] = _mm256_shuffle_epi32(v, 0xaa);
        quads[4 * h + 3] = _mm256_shuffle_epi32(v, 0xff);
    }
    for (__m256i& q : quads) keep(q);
}

// The sum of kQuads quads less the bias. A balanced tree: a token's result comes after 3 adds, not 8, so that
// the scheduler (64 entries) reaches further ahead.
template <int kQuads>
EDGEWISE_INLINE __m256i pair_sums(const __m256i* codes, const __m256i* x, __m256i bias) {
    const auto two = [&](int q) __attribute__((always_inline)) {
        __m256i sum =
            add16(_mm256_maddubs_epi16(x[q], codes[q]), _mm256_maddubs_epi16(x[q + 1], codes[q + 1]));
        keep(sum);
        return sum;
    };
    __m256i a = _mm256_sub_epi16(two(0), bias);
    keep(a);
    a = add16(a, two(2));
    keep(a);
    if constexpr (kQuads == 4) return a;
    __m256i b = add16(two(4), two(6));
    keep(b);
    return add16(a, b);
}

template <Format F, int kBlocks>
EDGEWISE_INLINE __m256i dot(const Panel<F, kBlocks>& p, int b, const __m256i (&x)[8], __m256i ones) {
    const __m256i* codes = p.codes[b];
    if constexpr (F == Format::Q6_K)
        return add32(_mm256_madd_epi16(pair_sums<4>(codes, x, p.bias[b][0]), p.half_scales[b][0]),
                     _mm256_madd_epi16(pair_sums<4>(codes + 4, x + 4, p.bias[b][1]), p.half_scales[b][1]));
    const __m256i sum = _mm256_madd_epi16(pair_sums<8>(codes, x, p.bias[b][0]), ones);
    if constexpr (traits(F).bits < 8) return sum;
    return add32(sum, _mm256_madd_epi16(pair_sums<8>(codes + 8, x, p.bias[b][1]), _mm256_set1_epi16(16)));
}

// Adds a panel, group g, to the accumulators [tokens][kBlocks].
template <Format F, int kBlocks>
EDGEWISE_INLINE void add_panel(const Panel<F, kBlocks>& p, const TokenBlock& x, int64_t g, int64_t tokens,
                               const int32_t* corrections, __m256* acc) {
    const int64_t first = g * x.tokens;
    __m256i ones = _mm256_set1_epi16(1);
    keep(ones);
    for (int64_t t = 0; t < tokens; ++t, acc += kBlocks) {
        __m256i quads[8], given_back;
        read_activations(x.codes + (first + t) * kGroup, quads);
        const __m256 dx = _mm256_set1_ps(x.scales[first + t]);
        const __m256 correction = _mm256_castsi256_ps(_mm256_set1_epi32(corrections[t]));
        if constexpr (kGivesBack<F>)
            given_back = _mm256_madd_epi16(broadcast(x.sums + 2 * (first + t)), _mm256_set1_epi16(16));
#pragma GCC unroll 8
        for (int b = 0; b < kBlocks; ++b) {
            __m256i i = dot(p, b, quads, ones);
            if constexpr (kGivesBack<F>) i = add32(i, given_back);
            acc[b] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), _mm256_mul_ps(p.scale[b], dx), acc[b]);
            if constexpr (traits(F).minimum) acc[b] = _mm256_fmadd_ps(p.minimum[b], correction, acc[b]);
        }
    }
}

template <Format F>
struct Call {
    int64_t cols, block_bytes;
    const TokenBlock& x;
    int64_t tokens, y_stride;
};

// kBlocks row blocks from `w` on, of which `rows` rows exist.
template <Format F, int kBlocks>
void multiply(const Call<F>& c, const uint8_t* w, int64_t rows, float* y) {
    constexpr PackedBlock kAt = packed_block(F, kLanes);
    constexpr int64_t kGroupBytes = kAt.bytes / kBlockGroups<F>;
    alignas(32) int32_t corrections[kChunk * kTokenBlock];
    __m256 acc[kTokenBlock * kBlocks];
    Panel<F, kBlocks> panel;
    BlockScales<F> scales[kBlocks];
    std::fill_n(acc, c.tokens * kBlocks, _mm256_setzero_ps());
    const int64_t n = c.x.tokens, groups = c.cols / kGroup;
    for (int64_t first = 0; first < groups; first += kBlockGroups<F>, w += kAt.bytes) {
        const int64_t in_chunk = first % kChunk;
        if (traits(F).minimum && in_chunk == 0)
            read_corrections<F>(c.x.scales + first * n, c.x.sums + 2 * first * n, kChunk * n, corrections);
        for (int b = 0; b < kBlocks; ++b) scales[b].read(w + b * c.block_bytes);
        for (int64_t g = 0; g < kBlockGroups<F>; ++g) {
            const uint8_t* group = w + kAt.groups + g * kAt.group_bytes;
            for (int b = 0; b < kBlocks; ++b) {
                prefetch(group + b * c.block_bytes + kAhead * kGroupBytes, kGroupBytes);
                panel.read(b, scales[b], group + b * c.block_bytes, g);
            }
            add_panel(panel, c.x, first + g, c.tokens, corrections + (in_chunk + g) * n, acc);
        }
    }
    for (int64_t t = 0; t < c.tokens; ++t)
        for (int b = 0; b < kBlocks; ++b)
            store_rows(acc[t * kBlocks + b], rows - b * kLanes, y + t * c.y_stride + b * kLanes);
}

}  // namespace

void linear_panels(Format format, const uint8_t* w, int64_t cols, int64_t rows, int64_t blocks,
                   const TokenBlock& x, int64_t tokens, float* y, int64_t y_stride) {
    with_format(format, [&]<Format F>() {
        const Call<F> call{cols, cols / traits(F).cols * packed_block(F, kLanes).bytes, x, tokens, y_stride};
        for (int64_t b = 0; b < blocks;) {
            const uint8_t* from = w + b * call.block_bytes;
            const auto run = [&]<int kBlocks>() {
                multiply<F, kBlocks>(call, from, rows - b * kLanes, y + b * kLanes);
                b += kBlocks;
            };
            if (blocks - b >= kMaxPanel)
                run.template operator()<kMaxPanel>();
            else if (blocks - b >= 4)
                run.template operator()<4>();
            else if (blocks - b >= 2)
                run.template operator()<2>();
            else
                run.template operator()<1>();
        }
    });
}

}  // namespace edgewise::avx2
