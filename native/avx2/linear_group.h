// One group of 32 columns of 8 rows in registers, per format: unpacking and the dot product with one token.
//
// A vector holds a quad, 4 consecutive columns of 8 rows: its i32 lane r belongs to row r. Four activation
// bytes broadcast to all lanes meet it in vpmaddubsw (u8 weights, s8 activations), whose sums of two products
// are i16. How many of them add up before they must be widened is bounded by the largest code, |x| <= 127:
//   4 bits   8 * 2 * 15 * 127 = 30480: all eight quads
//   5 bits   4 * 2 * 31 * 127 = 31496: four
//   6 bits   2 * 2 * 63 * 127 = 32004: two; the widening vpmaddwd multiplies by the half's scale at no cost
//   8 bits   255 * 127 * 2 does not fit at all, and |w| with the sign moved to x (vpsignb) needs a widening
//   for every
//            quad; the two nibbles of w + 128 need two multiply-adds a quad but one widening each, and no
//            vpsignb, which Zen 3 starts only once a cycle.
#pragma once

#include <immintrin.h>

#include "formats.h"

namespace edgewise::avx2 {
namespace {

inline constexpr int64_t kLanes = 8;

inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

inline __m256 load_halves(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline __m256i broadcast(const void* p) {
    int32_t value;
    std::memcpy(&value, p, sizeof value);
    return _mm256_set1_epi32(value);
}

inline __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }

inline __m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }

// Moves the bits `mask << from` of every byte to `mask << 4`.
template <int kFrom>
inline __m256i to_bit_4(__m256i v, int mask) {
    if constexpr (kFrom < 4) v = _mm256_slli_epi16(v, 4 - kFrom);
    if constexpr (kFrom > 4) v = _mm256_srli_epi16(v, kFrom - 4);
    return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(mask << 4)));
}

// The scale fields of one packed block: d and minima as f32, and the sub-scales of the _K formats.
template <Format F>
struct BlockScales {
    static constexpr FormatTraits kTraits = traits(F);
    static constexpr PackedBlock kAt = packed_block(F, kLanes);
    static constexpr bool kSixBitScales = F == Format::Q4_K || F == Format::Q5_K;

    __m256 d, m;
    alignas(32) uint8_t values[kSixBitScales ? 128 : 1];  // [g][is_min][lane]
    const uint8_t* scales;

    explicit BlockScales(const uint8_t* block) : d(load_halves(block)), scales(block + kAt.scales) {
        if constexpr (kTraits.minimum) m = load_halves(block + kAt.minima);
        if constexpr (kSixBitScales) unpack_values();
    }

    void unpack_values() {
        const __m256i low0 = load(scales), low1 = load(scales + 32), high = load(scales + 64);
        auto* out = reinterpret_cast<__m256i*>(values);
        _mm256_store_si256(out, _mm256_or_si256(low_nibbles(low0), to_bit_4<0>(high, 3)));
        _mm256_store_si256(out + 1, _mm256_or_si256(low_nibbles(low1), to_bit_4<2>(high, 3)));
        _mm256_store_si256(out + 2, _mm256_or_si256(high_nibbles(low0), to_bit_4<4>(high, 3)));
        _mm256_store_si256(out + 3, _mm256_or_si256(high_nibbles(low1), to_bit_4<6>(high, 3)));
    }

    __m256 value(int64_t index) const {
        const auto* p = reinterpret_cast<const __m128i*>(values + index * kLanes);
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)));
    }

    __m256 group_scale(int64_t g) const {
        if constexpr (kSixBitScales) return _mm256_mul_ps(d, value(2 * g));
        return d;
    }

    __m256 group_minimum(int64_t g) const {
        if constexpr (kSixBitScales)
            return _mm256_xor_ps(_mm256_mul_ps(m, value(2 * g + 1)), _mm256_set1_ps(-0.0f));
        return m;
    }
};

// The codes of one group: quads[q] unsigned; for 8 bits the low nibbles of w + 128, and `high` its high
// nibbles.
template <Format F>
struct GroupCodes {
    static constexpr int kBits = traits(F).bits;
    static constexpr int64_t kHigh = packed_block(F, kLanes).high;

    __m256i quads[8];
    alignas(32) __m256i high[kBits == 8 ? 8 : 1];

    explicit GroupCodes(const uint8_t* group) {
        if constexpr (kBits == 8) {
            unpack_bytes(group);
        } else {
            for (int j = 0; j < 4; ++j) {
                const __m256i v = load(group + 32 * j);
                quads[j] = low_nibbles(v);
                quads[j + 4] = high_nibbles(v);
            }
            if constexpr (kBits == 5) add_bits(load(group + kHigh));
            if constexpr (kBits == 6) add_pairs(load(group + kHigh), load(group + kHigh + 32));
        }
    }

    void unpack_bytes(const uint8_t* group) {
        for (int q = 0; q < 8; ++q) {
            const __m256i v = _mm256_xor_si256(load(group + 32 * q), _mm256_set1_epi8(-128));
            quads[q] = low_nibbles(v);
            high[q] = high_nibbles(v);
        }
    }

    template <int kQuad>
    void add(__m256i bits) {
        quads[kQuad] = _mm256_or_si256(quads[kQuad], bits);
    }

    void add_bits(__m256i h) {
        add<0>(to_bit_4<0>(h, 1)), add<1>(to_bit_4<1>(h, 1)), add<2>(to_bit_4<2>(h, 1)),
            add<3>(to_bit_4<3>(h, 1));
        add<4>(to_bit_4<4>(h, 1)), add<5>(to_bit_4<5>(h, 1)), add<6>(to_bit_4<6>(h, 1)),
            add<7>(to_bit_4<7>(h, 1));
    }

    void add_pairs(__m256i h0, __m256i h1) {
        add<0>(to_bit_4<0>(h0, 3)), add<1>(to_bit_4<2>(h0, 3)), add<2>(to_bit_4<4>(h0, 3)),
            add<3>(to_bit_4<6>(h0, 3));
        add<4>(to_bit_4<0>(h1, 3)), add<5>(to_bit_4<2>(h1, 3)), add<6>(to_bit_4<4>(h1, 3)),
            add<7>(to_bit_4<6>(h1, 3));
    }
};

}  // namespace
}  // namespace edgewise::avx2
