// Quantisation of activations (linear.h) on AVX2.
//
// The tokens of a tile are the inner loop: their cells are neighbours, so writes fill whole cache lines,
// where a token on its own would touch 32 bytes every 2 KiB, all of them in two sets of L1.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "linear.h"
#include "quantized_rows.h"

namespace edgewise::avx2 {
namespace {

constexpr int64_t kTile = 8;

// Magnitudes compare as integers like they do as floats, with Inf and NaN on top, where max_ps can lose a
// NaN.
float largest_magnitude(const __m256 (&x)[4]) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    for (const __m256& v : x) most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v), mask));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return std::bit_cast<float>(_mm_cvtsi128_si32(m));
}

// x * inverse in int8, in order. |x * inverse| <= 127 (1 + 2^-23), so rounding needs no clamp.
__m256i round_codes(const __m256 (&x)[4], __m256 inverse) {
    __m256i i[4];
    for (int j = 0; j < 4; ++j) i[j] = _mm256_cvtps_epi32(_mm256_mul_ps(x[j], inverse));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(i[0], i[1]), _mm256_packs_epi32(i[2], i[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Sums of the first and the second 16 codes: vpsadbw adds eight unsigned bytes, here codes + 128.
void store_sums(__m256i codes, int16_t* sums) {
    __m256i s = _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    s = _mm256_add_epi64(s, _mm256_shuffle_epi32(s, 0x4e));
    sums[0] = static_cast<int16_t>(_mm256_extract_epi16(s, 0) - 16 * 128);
    sums[1] = static_cast<int16_t>(_mm256_extract_epi16(s, 8) - 16 * 128);
}

void quantize_group(const float* x, int8_t* codes, float* scale, int16_t* sums) {
    __m256 v[4];
    for (int j = 0; j < 4; ++j) v[j] = _mm256_loadu_ps(x + 8 * j);
    const float largest = largest_magnitude(v);
    const float inverse = 127.0f / largest;
    const bool finite = largest <= std::numeric_limits<float>::max();
    const bool zero = !finite || !(inverse <= std::numeric_limits<float>::max());
    *scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : largest / 127.0f;
    const __m256i rounded = zero ? _mm256_setzero_si256() : round_codes(v, _mm256_set1_ps(inverse));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), rounded);
    store_sums(rounded, sums);
}

// A group that the row does not fill: cols is no multiple of 32, or only padding.
void quantize_tail(const float* x, int64_t n, int8_t* codes, float* scale, int16_t* sums) {
    float padded[kGroup] = {};
    if (n > 0) std::copy_n(x, n, padded);
    quantize_group(padded, codes, scale, sums);
}

}  // namespace

void quantize(const float* x, int64_t stride, int64_t begin, int64_t end, const QuantizedRows& out) {
    for (int64_t tile = begin; tile < end;) {
        const int64_t tile_end = std::min({end, tile + kTile, (tile / kTokenBlock + 1) * kTokenBlock});
        const TokenBlock block = token_block(out, tile / kTokenBlock);
        for (int64_t g = 0; g < out.groups; ++g) {
            const int64_t n = out.cols - g * kGroup;
            for (int64_t t = tile; t < tile_end; ++t) {
                const int64_t cell = g * block.tokens + t % kTokenBlock;
                int8_t* codes = block.codes + cell * kGroup;
                if (n >= kGroup)
                    quantize_group(x + t * stride + g * kGroup, codes, block.scales + cell,
                                   block.sums + cell * 2);
                else
                    quantize_tail(x + t * stride + g * kGroup, n, codes, block.scales + cell,
                                  block.sums + cell * 2);
            }
        }
        tile = tile_end;
    }
}

}  // namespace edgewise::avx2
