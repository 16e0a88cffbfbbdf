// Element-wise kernels, eight floats at a time. The last width mod 8 go through the same code under a mask,
// with zeros in the lanes beyond, so that a row's bits do not depend on where its end falls.
#include "elementwise.h"

#include <immintrin.h>

#include "activations.h"
#include "dispatch.h"

namespace edgewise::avx2 {

namespace {

constexpr int64_t kLanes = 8;

// All ones in the first n lanes, 0 <= n <= 8.
inline __m256i first_lanes(int64_t n) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), index);
}

// Whole vectors.
struct Full {
    __m256 load(const float* p) const { return _mm256_loadu_ps(p); }
    void store(float* p, __m256 v) const { _mm256_storeu_ps(p, v); }
    __m256 keep(__m256 v) const { return v; }
};

// The first lanes only; the others read as 0 and are not written.
struct Masked {
    __m256i mask;
    __m256 load(const float* p) const { return _mm256_maskload_ps(p, mask); }
    void store(float* p, __m256 v) const { _mm256_maskstore_ps(p, mask, v); }
    __m256 keep(__m256 v) const { return _mm256_and_ps(v, _mm256_castsi256_ps(mask)); }
};

// body(k, access) for k = 0, 8, ... below width.
template <class Body>
inline void for_lanes(int64_t width, Body body) {
    int64_t k = 0;
    for (; k + kLanes <= width; k += kLanes) body(k, Full{});
    if (k < width) body(k, Masked{first_lanes(width - k)});
}

template <class Function>
inline void map(const float* x, int64_t width, float* y, Function f) {
    for_lanes(width, [=](int64_t k, auto lanes) { lanes.store(y + k, f(lanes.load(x + k))); });
}

template <class Function>
inline void map_gated(const float* gate, const float* up, int64_t width, float* y, Function f) {
    for_lanes(width, [=](int64_t k, auto lanes) {
        lanes.store(y + k, _mm256_mul_ps(f(lanes.load(gate + k)), lanes.load(up + k)));
    });
}

inline __m256 inverse_root(float mean_square, float eps) {
    return _mm256_set1_ps(1.0f / std::sqrt(mean_square + eps));
}

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, int64_t width, float* y) {
    __m256 sums = _mm256_setzero_ps();
    for_lanes(width, [&](int64_t k, auto lanes) {
        __m256 v = lanes.load(x + k);
        sums = _mm256_fmadd_ps(v, v, sums);
    });
    __m256 r = inverse_root(sum_lanes(sums) / static_cast<float>(width), eps);
    for_lanes(width, [=](int64_t k, auto lanes) {
        __m256 v = _mm256_mul_ps(lanes.load(x + k), r);
        lanes.store(y + k, weight ? _mm256_mul_ps(v, lanes.load(weight + k)) : v);
    });
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t width, float* y) {
    __m256 sums = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    for_lanes(width, [&](int64_t k, auto lanes) { sums = _mm256_add_ps(sums, lanes.load(x + k)); });
    __m256 mean = _mm256_set1_ps(sum_lanes(sums) / static_cast<float>(width));
    for_lanes(width, [&](int64_t k, auto lanes) {
        __m256 d = lanes.keep(_mm256_sub_ps(lanes.load(x + k), mean));
        squares = _mm256_fmadd_ps(d, d, squares);
    });
    __m256 r = inverse_root(sum_lanes(squares) / static_cast<float>(width), eps);
    for_lanes(width, [=](int64_t k, auto lanes) {
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(lanes.load(x + k), mean), r);
        __m256 b = bias ? lanes.load(bias + k) : _mm256_setzero_ps();
        lanes.store(y + k, _mm256_fmadd_ps(v, lanes.load(weight + k), b));
    });
}

void activation(Activation kind, const float* x, int64_t width, float* y) {
    switch (kind) {
        case Activation::Silu:
            return map(x, width, y, [](__m256 v) { return silu(v); });
        case Activation::GeluTanh:
            return map(x, width, y, [](__m256 v) { return gelu_tanh(v); });
        case Activation::Gelu:
            return map(x, width, y, [](__m256 v) { return gelu(v); });
        case Activation::Relu2:
            return map(x, width, y, [](__m256 v) { return relu2(v); });
    }
}

void gated_activation(Activation kind, const float* gate, const float* up, int64_t width, float* y) {
    switch (kind) {
        case Activation::Silu:
            return map_gated(gate, up, width, y, [](__m256 v) { return silu(v); });
        case Activation::GeluTanh:
            return map_gated(gate, up, width, y, [](__m256 v) { return gelu_tanh(v); });
        case Activation::Gelu:
            return map_gated(gate, up, width, y, [](__m256 v) { return gelu(v); });
        case Activation::Relu2:
            return map_gated(gate, up, width, y, [](__m256 v) { return relu2(v); });
    }
}

void add(const float* x, float scale, int64_t width, float* y) {
    __m256 s = _mm256_set1_ps(scale);
    for_lanes(width, [=](int64_t k, auto lanes) {
        lanes.store(y + k, _mm256_fmadd_ps(lanes.load(x + k), s, lanes.load(y + k)));
    });
}

void soft_cap(const float* x, float cap, int64_t width, float* y) {
    __m256 c = _mm256_set1_ps(cap);
    map(x, width, y, [=](__m256 v) { return _mm256_mul_ps(c, vector_tanh(_mm256_div_ps(v, c))); });
}

// Sines and cosines in double precision are the C library's, so this is the generic loop.
void rope_table(double position, const double* inv_freq, int64_t pairs, float scale, float* cos_sin) {
    generic::rope_table(position, inv_freq, pairs, scale, cos_sin);
}

namespace {

// cos and sin of `pairs` pairs taken apart from cos_sin [pairs][2], lanes beyond the end 0.
struct Angles {
    __m256 cos, sin;
    Angles(const float* cos_sin, int64_t pairs) {
        __m256 low = _mm256_maskload_ps(cos_sin, first_lanes(2 * pairs));  // more than 8 lanes: all
        __m256 high = _mm256_setzero_ps();
        if (pairs > kLanes / 2) high = _mm256_maskload_ps(cos_sin + kLanes, first_lanes(2 * pairs - kLanes));
        // In each 128-bit half: (c0 s0 c1 s1), (c4 s4 c5 s5) -> (c0 c1 c4 c5); then the quarters in order.
        cos = in_order(_mm256_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
        sin = in_order(_mm256_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
    }
    static __m256 in_order(__m256 v) {
        return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), _MM_SHUFFLE(3, 1, 2, 0)));
    }
};

void rope_halves(float* x, int64_t pairs, const float* cos_sin) {
    for_lanes(pairs, [=](int64_t i, auto lanes) {
        Angles angle(cos_sin + 2 * i, pairs - i);
        __m256 a = lanes.load(x + i), b = lanes.load(x + i + pairs);
        lanes.store(x + i, _mm256_fmsub_ps(a, angle.cos, _mm256_mul_ps(b, angle.sin)));
        lanes.store(x + i + pairs, _mm256_fmadd_ps(b, angle.cos, _mm256_mul_ps(a, angle.sin)));
    });
}

void rope_interleaved(float* x, int64_t pairs, const float* cos_sin) {
    for_lanes(2 * pairs, [=](int64_t k, auto lanes) {
        __m256 v = lanes.load(x + k), angle = lanes.load(cos_sin + k);
        __m256 cos = _mm256_moveldup_ps(angle), sin = _mm256_movehdup_ps(angle);
        __m256 swapped = _mm256_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1));
        lanes.store(x + k, _mm256_fmaddsub_ps(v, cos, _mm256_mul_ps(swapped, sin)));
    });
}

}  // namespace

void rope(float* x, int64_t heads, int64_t head_dim, int64_t pairs, bool interleaved, const float* cos_sin) {
    auto rotate = interleaved ? rope_interleaved : rope_halves;
    for (int64_t h = 0; h < heads; h++) rotate(x + h * head_dim, pairs, cos_sin);
}

}  // namespace edgewise::avx2
