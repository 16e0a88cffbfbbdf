// One group of 32 columns of 8 rows: the scale fields and the unpacked codes, and sums of products that fit
// 16 bits.
//
// A vector holds a quad, 4 consecutive columns of 8 rows: its i32 lane r belongs to row r. vpmaddubsw
// multiplies it by four activation bytes broadcast to all lanes and adds two products at a time to i16.
#pragma once

#include <immintrin.h>

#include "formats.h"

namespace edgewise::avx2 {
namespace {

#define EDGEWISE_INLINE [[gnu::always_inline]] inline

inline constexpr int64_t kLanes = 8;
inline constexpr int64_t kChunk =
    8;  // groups between two computations of the tokens' corrections; a _K block

// Groups of 32 in a packed block, and vectors of codes in a group: 8-bit codes are taken apart into nibbles.
template <Format F>
inline constexpr int64_t kBlockGroups = traits(F).cols / kGroup;
template <Format F>
inline constexpr int kVectors = traits(F).bits == 8 ? 16 : 8;

// Pins a value to a register where it stands. Without it the compiler turns chains of adds into one wide tree
// and spills its leaves, and loads constants in every iteration.
EDGEWISE_INLINE void keep(__m256i& v) { asm("" : "+x"(v)); }

EDGEWISE_INLINE __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

EDGEWISE_INLINE __m128i load_16_bytes(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

EDGEWISE_INLINE __m256i broadcast(const void* p) {
    int32_t value;
    std::memcpy(&value, p, sizeof value);
    return _mm256_set1_epi32(value);
}

EDGEWISE_INLINE void prefetch(const uint8_t* p, int64_t bytes) {
    for (int64_t line = 0; line < bytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(p + line), _MM_HINT_T0);
}

EDGEWISE_INLINE __m256i add16(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
EDGEWISE_INLINE __m256i add32(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }

EDGEWISE_INLINE __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
EDGEWISE_INLINE __m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }

// Moves the bits `mask << kFrom` of every byte to `mask << 4`.
template <int kFrom>
EDGEWISE_INLINE __m256i to_bit_4(__m256i v, int mask) {
    if constexpr (kFrom < 4) v = _mm256_slli_epi16(v, 4 - kFrom);
    if constexpr (kFrom > 4) v = _mm256_srli_epi16(v, kFrom - 4);
    return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(mask << 4)));
}

// The scale fields of one packed block: d and minima as f32, and the sub-scales of the _K formats.
template <Format F>
struct BlockScales {
    static constexpr FormatTraits kTraits = traits(F);
    static constexpr PackedBlock kAt = packed_block(F, kLanes);
    static constexpr bool kSixBits = kTraits.minimum && kTraits.cols == 256;

    __m256 d, m;
    alignas(32) uint8_t values[kSixBits ? 128 : 1];  // [g][is_min][lane]
    const uint8_t* scales;

    EDGEWISE_INLINE void read(const uint8_t* block) {
        d = _mm256_cvtph_ps(load_16_bytes(block));
        scales = block + kAt.scales;
        if constexpr (kTraits.minimum) m = _mm256_cvtph_ps(load_16_bytes(block + kAt.minima));
        if constexpr (kSixBits) read_values();
    }

    EDGEWISE_INLINE void read_values() {
        const __m256i low0 = load(scales), low1 = load(scales + 32), high = load(scales + 64);
        auto* out = reinterpret_cast<__m256i*>(values);
        _mm256_store_si256(out, _mm256_or_si256(low_nibbles(low0), to_bit_4<0>(high, 3)));
        _mm256_store_si256(out + 1, _mm256_or_si256(low_nibbles(low1), to_bit_4<2>(high, 3)));
        _mm256_store_si256(out + 2, _mm256_or_si256(high_nibbles(low0), to_bit_4<4>(high, 3)));
        _mm256_store_si256(out + 3, _mm256_or_si256(high_nibbles(low1), to_bit_4<6>(high, 3)));
    }

    EDGEWISE_INLINE __m256 value(int64_t index) const {
        const auto* p = reinterpret_cast<const __m128i*>(values + index * kLanes);
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)));
    }

    EDGEWISE_INLINE __m256 group_scale(int64_t g) const {
        if constexpr (kSixBits) return _mm256_mul_ps(d, value(2 * g));
        return d;
    }

    EDGEWISE_INLINE __m256 group_minimum(int64_t g) const {
        if constexpr (!kSixBits) return m;
        return _mm256_xor_ps(_mm256_mul_ps(m, value(2 * g + 1)), _mm256_set1_ps(-0.0f));
    }

    // Q6_K: i16 pairs (first half, second half) of a lane's int8 scales.
    EDGEWISE_INLINE __m256i half_scales(int64_t g) const {
        return _mm256_cvtepi8_epi16(load_16_bytes(scales + g * 2 * kLanes));
    }
};

EDGEWISE_INLINE __m256i first_halves(__m256i pairs) {
    return _mm256_blend_epi16(pairs, _mm256_slli_epi32(pairs, 16), 0xaa);
}

EDGEWISE_INLINE __m256i second_halves(__m256i pairs) {
    return _mm256_blend_epi16(_mm256_srli_epi32(pairs, 16), pairs, 0xaa);
}

// Unsigned codes of a group, quad by quad. 8 bits: the low nibbles of code + 128, then the high ones.
template <Format F>
EDGEWISE_INLINE void read_codes(const uint8_t* group, __m256i (&v)[kVectors<F>]) {
    constexpr int kBits = traits(F).bits;
    constexpr int64_t kHigh = packed_block(F, kLanes).high;
    if constexpr (kBits == 8) {
        for (int q = 0; q < 8; ++q) {
            const __m256i code = _mm256_xor_si256(load(group + 32 * q), _mm256_set1_epi8(-128));
            v[q] = low_nibbles(code);
            v[q + 8] = high_nibbles(code);
        }
        return;
    }
    for (int j = 0; j < 4; ++j) {
        const __m256i nibbles = load(group + 32 * j);
        v[j] = low_nibbles(nibbles);
        v[j + 4] = high_nibbles(nibbles);
    }
    const auto add = [&]<int kQuad, int kFrom>(__m256i bits, int mask) __attribute__((always_inline)) {
        v[kQuad] = _mm256_or_si256(v[kQuad], to_bit_4<kFrom>(bits, mask));
    };
    if constexpr (kBits == 5) {
        const __m256i h = load(group + kHigh);
        add.template operator()<0, 0>(h, 1), add.template operator()<1, 1>(h, 1);
        add.template operator()<2, 2>(h, 1), add.template operator()<3, 3>(h, 1);
        add.template operator()<4, 4>(h, 1), add.template operator()<5, 5>(h, 1);
        add.template operator()<6, 6>(h, 1), add.template operator()<7, 7>(h, 1);
    }
    if constexpr (kBits == 6) {
        const __m256i a = load(group + kHigh), b = load(group + kHigh + 32);
        add.template operator()<0, 0>(a, 3), add.template operator()<1, 2>(a, 3);
        add.template operator()<2, 4>(a, 3), add.template operator()<3, 6>(a, 3);
        add.template operator()<4, 0>(b, 3), add.template operator()<5, 2>(b, 3);
        add.template operator()<6, 4>(b, 3), add.template operator()<7, 6>(b, 3);
    }
}

// What cells add besides the product of codes, the same for all rows: f32 scale * sum of codes for formats
// with a minimum, else i32 offset * sum of codes.
template <Format F>
EDGEWISE_INLINE void read_corrections(const float* scales, const int16_t* sums, int64_t cells, int32_t* out) {
    constexpr FormatTraits kTraits = traits(F);
    constexpr int16_t kFactor = kTraits.minimum ? 1 : kTraits.bits == 8 ? 128 : kTraits.offset;
    for (int64_t i = 0; i < cells; i += 8) {
        __m256i sum = _mm256_madd_epi16(load(sums + 2 * i), _mm256_set1_epi16(kFactor));
        if constexpr (kTraits.minimum)
            sum = _mm256_castps_si256(_mm256_mul_ps(_mm256_loadu_ps(scales + i), _mm256_cvtepi32_ps(sum)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), sum);
    }
}

EDGEWISE_INLINE void store_rows(__m256 acc, int64_t rows, float* y) {
    if (rows >= kLanes) return _mm256_storeu_ps(y, acc);
    alignas(32) float lanes[kLanes];
    _mm256_store_ps(lanes, acc);
    for (int64_t r = 0; r < rows; ++r) y[r] = lanes[r];
}

}  // namespace
}  // namespace edgewise::avx2
