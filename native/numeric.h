// numeric: elementary functions and conversions whose every rounding is fixed.
//
// Each function exists for one float and, in files built with AVX2, for eight; both forms do the same
// operations in the same order, fused exactly where fma is written, so that their results are equal bit for
// bit. Errors are the largest seen over all floats of the range. All functions are `static`: a shared copy
// compiled with AVX2 could otherwise be linked into code that has to run without it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define EDGEWISE_NUMERIC_AVX2 1
#endif

namespace edgewise {

namespace exp_constants {
// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. kRound is 1.5 * 2^23: adding it leaves n in the
// low bits. exp(r) = 1 + u, u = r + r^2 (c2 + c3 r + r^2 (c4 + c5 r + c6 r^2)): minimax of the relative
// error, 0.04 * 2^-24 before rounding. The last step, 2^n + 2^n u in one fma, leaves little more than its own
// rounding.
inline constexpr float kLog2e = 0x1.715476p+0f, kRound = 0x1.8p+23f;
inline constexpr float kLn2High = 0x1.62e430p-1f, kLn2Low = -0x1.05c610p-29f;
inline constexpr float c2 = 0x1.fffffcp-2f, c3 = 0x1.555418p-3f, c4 = 0x1.555824p-5f, c5 = 0x1.1267d8p-7f,
                       c6 = 0x1.6ae6e0p-10f;
// Below kLow the exponent field of 2^n is 0 and so is the result; kHigh is the last x with n = 127.
inline constexpr float kLow = -88.0f, kHigh = 88.37f;
}  // namespace exp_constants

namespace tanh_constants {
// |x| < kSmall: x + x z P(z), z = x^2, minimax; beyond it 1 - 2 / (exp(2 |x|) + 1) with the sign of x.
inline constexpr float kSmall = 0.55f;
inline constexpr float c0 = -0.33333316f, c1 = 0.13332586f, c2 = -0.05385231f, c3 = 0.021071676f,
                       c4 = -0.0062742364f;
}  // namespace tanh_constants

// e^x within 1.2 ulp; 0 below -87.69 (no subnormal results), constant from 88.37 on (2.4e38, not infinity),
// exp(0) = 1 exactly, NaN stays NaN.
[[maybe_unused]] static inline float vector_exp(float x) {
    using namespace exp_constants;
    x = kLow > x ? kLow : x;
    x = kHigh < x ? kHigh : x;
    float z = std::fma(x, kLog2e, kRound);
    float n = z - kRound;
    float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
    float r2 = r * r;
    float p = std::fma(c6, r2, std::fma(c5, r, c4));
    p = std::fma(p, r2, std::fma(c3, r, c2));
    float u = std::fma(p, r2, r);
    float power = std::bit_cast<float>((std::bit_cast<uint32_t>(z) << 23) + 0x3f800000u);
    return std::fma(u, power, power);
}

// tanh within 1.5 ulp; the sign of zero is kept, NaN stays NaN.
[[maybe_unused]] static inline float vector_tanh(float x) {
    using namespace tanh_constants;
    float a = std::fabs(x);
    float z = x * x;
    float p = std::fma(c4, z, c3);
    p = std::fma(p, z, c2);
    p = std::fma(p, z, c1);
    p = std::fma(p, z, c0);
    float small = std::fma(p * z, a, a);
    float large = 1.0f - 2.0f / (vector_exp(a + a) + 1.0f);
    return std::copysign(a < kSmall ? small : large, x);
}

// The sum of 8 lanes in the order every kernel uses: ((0+4)+(2+6))+((1+5)+(3+7)).
[[maybe_unused]] static inline float sum_lanes(const float* v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

[[maybe_unused]] static inline float half_to_float(uint16_t h) {
    uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    uint32_t magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) {  // infinity, or a NaN made quiet with its payload kept
        uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
        return std::bit_cast<float>(sign | 0x7f800000u | quiet | (magnitude & 0x3ffu) << 13);
    }
    if (magnitude < 0x400u) {  // zero and subnormals: an exact product
        return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

// Rounds to nearest even; above 65519 to infinity.
[[maybe_unused]] static inline uint16_t float_to_half(float x) {
    uint32_t bits = std::bit_cast<uint32_t>(x);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude <
        0x38800000u) {  // a subnormal half: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
        float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

#ifdef EDGEWISE_NUMERIC_AVX2

// N vectors at once, in place. One exponential is a chain of some 45 cycles: interleaved ones fill the wait.
template <int N>
[[maybe_unused]] static inline void vector_exp(__m256 (&x)[N]) {
    using namespace exp_constants;
    __m256 z[N], p[N];
    for (int i = 0; i < N; ++i) {
        // max and min return the second operand when either is NaN
        x[i] = _mm256_max_ps(_mm256_set1_ps(kLow), x[i]);
        x[i] = _mm256_min_ps(_mm256_set1_ps(kHigh), x[i]);
        z[i] = _mm256_fmadd_ps(x[i], _mm256_set1_ps(kLog2e), _mm256_set1_ps(kRound));
    }
    for (int i = 0; i < N; ++i) {
        __m256 n = _mm256_sub_ps(z[i], _mm256_set1_ps(kRound));
        x[i] = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2High), x[i]);
        x[i] = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Low), x[i]);
    }
    for (int i = 0; i < N; ++i) {
        __m256 r2 = _mm256_mul_ps(x[i], x[i]);
        p[i] = _mm256_fmadd_ps(_mm256_set1_ps(c5), x[i], _mm256_set1_ps(c4));
        p[i] = _mm256_fmadd_ps(_mm256_set1_ps(c6), r2, p[i]);
        __m256 low = _mm256_fmadd_ps(_mm256_set1_ps(c3), x[i], _mm256_set1_ps(c2));
        p[i] = _mm256_fmadd_ps(p[i], r2, low);
        p[i] = _mm256_fmadd_ps(p[i], r2, x[i]);
    }
    for (int i = 0; i < N; ++i) {
        __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(z[i]), 23);
        __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(0x3f800000)));
        x[i] = _mm256_fmadd_ps(p[i], power, power);
    }
}

[[maybe_unused]] static inline __m256 vector_exp(__m256 x) {
    __m256 one[1] = {x};
    vector_exp(one);
    return one[0];
}

[[maybe_unused]] static inline __m256 vector_tanh(__m256 x) {
    using namespace tanh_constants;
    __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 a = _mm256_andnot_ps(sign, x);
    __m256 z = _mm256_mul_ps(x, x);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(c4), z, _mm256_set1_ps(c3));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(c2));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(c1));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(c0));
    __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(p, z), a, a);
    __m256 one = _mm256_set1_ps(1.0f);
    __m256 ratio = _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(vector_exp(_mm256_add_ps(a, a)), one));
    __m256 is_small = _mm256_cmp_ps(a, _mm256_set1_ps(kSmall), _CMP_LT_OQ);
    __m256 value = _mm256_blendv_ps(_mm256_sub_ps(one, ratio), small, is_small);
    return _mm256_or_ps(_mm256_and_ps(sign, x), value);
}

[[maybe_unused]] static inline float sum_lanes(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));  // 0+4, 1+5, 2+6, 3+7
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));  // (0+4)+(2+6), (1+5)+(3+7)
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

#endif

}  // namespace edgewise
