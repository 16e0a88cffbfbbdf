// activations: the MLP's nonlinearities, written once for one float and for eight (V is float or __m256).
//
// Same rules as numeric.h: every rounding is fixed, everything is `static`. NaN stays NaN.
#pragma once

#include "numeric.h"

namespace edgewise {

namespace phi_constants {
// The upper tail of the normal distribution, Q(u) = erfc(u / sqrt 2) / 2, for u >= 0 is exp(-u^2 / 2) t P(t)
// with t = 1 / (1 + kScale u): minimax of the relative error over u <= 13.5, 0.26 * 2^-24 before rounding.
inline constexpr float kScale = 0.3f;
inline constexpr float c0 = 0x1.ea3c70p-4f, c1 = 0x1.e9c716p-4f, c2 = 0x1.c36f06p-4f, c3 = 0x1.417c3cp-4f,
                       c4 = 0x1.88c10ep-4f, c5 = -0x1.435b2cp-4f, c6 = 0x1.87a55ap-3f, c7 = -0x1.d291b6p-3f,
                       c8 = 0x1.cbdf16p-4f, c9 = -0x1.516c20p-6f;
}  // namespace phi_constants

// The few operations below that have no operator. max and select keep a NaN of the last operand.
template <class V>
static inline V splat(float x);
template <>
inline float splat<float>(float x) {
    return x;
}
[[maybe_unused]] static inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
[[maybe_unused]] static inline float magnitude(float x) { return std::fabs(x); }
[[maybe_unused]] static inline float larger(float a, float b) { return a > b ? a : b; }
[[maybe_unused]] static inline float if_negative(float x, float yes, float no) { return x < 0.0f ? yes : no; }

#ifdef EDGEWISE_NUMERIC_AVX2
template <>
inline __m256 splat<__m256>(float x) {
    return _mm256_set1_ps(x);
}
[[maybe_unused]] static inline __m256 fused(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
[[maybe_unused]] static inline __m256 magnitude(__m256 x) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
[[maybe_unused]] static inline __m256 larger(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
[[maybe_unused]] static inline __m256 if_negative(__m256 x, __m256 yes, __m256 no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}
#endif

// x / (1 + e^-x)
template <class V>
static inline V silu(V x) {
    return x / (splat<V>(1.0f) + vector_exp(-x));
}

// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which is x / (1 + e^-2u) with u the argument of tanh.
template <class V>
static inline V gelu_tanh(V x) {
    V cubic = fused(x * splat<V>(0.044715f), x, splat<V>(1.0f));
    V minus_2u = (x * splat<V>(-1.5957691216f)) * cubic;
    return x / (splat<V>(1.0f) + vector_exp(minus_2u));
}

// x Phi(x), Phi the normal distribution function: the exact GeLU. The errors of both GeLUs are below 4e-7,
// and below 10 ulp of the result for x > -3.
template <class V>
static inline V gelu(V x) {
    using namespace phi_constants;
    V one = splat<V>(1.0f), u = magnitude(x);
    V t = one / fused(u, splat<V>(kScale), one);
    V p = fused(splat<V>(c9), t, splat<V>(c8));
    for (float c : {c7, c6, c5, c4, c3, c2, c1, c0}) p = fused(p, t, splat<V>(c));
    V tail = (t * p) * vector_exp((u * splat<V>(-0.5f)) * u);
    return x * if_negative(x, tail, one - tail);
}

// max(x, 0)^2
template <class V>
static inline V relu2(V x) {
    V positive = larger(splat<V>(0.0f), x);
    return positive * positive;
}

}  // namespace edgewise
