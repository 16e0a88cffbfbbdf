// The passes of sampling, 8 logits a step.
#include "sampling.h"

#include <immintrin.h>

#include "numeric.h"

namespace edgewise::avx2 {
namespace {

constexpr float kInfinity = __builtin_inff();

int any(__m256 mask) { return _mm256_movemask_ps(mask); }

float max_lane(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Stretches of the scan for the maximum: the place of it is looked for in the best one only, which is still
// in L1.
constexpr int64_t kPeakStretch = 2048;

int64_t first_equal(const float* x, float value) {
    int64_t i = 0;
    while (!(x[i] == value)) ++i;
    return i;
}

SamplingScans::Peak peak(const float* x, int64_t n) {
    SamplingScans::Peak best{-kInfinity, 0, false};
    const __m256 infinity = _mm256_set1_ps(kInfinity);
    int64_t best_begin = 0;
    for (int64_t begin = 0; begin < n; begin += kPeakStretch) {
        const int64_t end = n - begin < kPeakStretch ? n : begin + kPeakStretch;
        __m256 top[4], fine = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
        for (__m256& t : top) t = _mm256_set1_ps(-kInfinity);
        int64_t i = begin;
        for (; i + 32 <= end; i += 32) {
            for (int j = 0; j < 4; ++j) {
                __m256 v = _mm256_loadu_ps(x + i + 8 * j);
                top[j] = _mm256_max_ps(v, top[j]);  // the second operand where v is NaN
                fine = _mm256_and_ps(fine, _mm256_cmp_ps(v, infinity, _CMP_LT_OQ));
            }
        }
        float value = max_lane(_mm256_max_ps(_mm256_max_ps(top[0], top[1]), _mm256_max_ps(top[2], top[3])));
        best.bad |= any(fine) != 0xff;
        for (; i < end; ++i) {
            best.bad |= !(x[i] < kInfinity);
            value = x[i] > value ? x[i] : value;
        }
        if (value > best.value) {
            best.value = value;
            best_begin = begin;
        }
    }
    if (best.value > -kInfinity) best.index = best_begin + first_equal(x + best_begin, best.value);
    return best;
}

int64_t next_above(const float* x, int64_t from, int64_t n, float threshold) {
    const __m256 limit = _mm256_set1_ps(threshold);
    auto above = [&](int64_t i) { return _mm256_cmp_ps(_mm256_loadu_ps(x + i), limit, _CMP_GT_OQ); };
    for (; from + 32 <= n; from += 32) {
        __m256 a = above(from), b = above(from + 8), c = above(from + 16), d = above(from + 24);
        if (any(_mm256_or_ps(_mm256_or_ps(a, b), _mm256_or_ps(c, d))) == 0) continue;
        uint32_t bits = static_cast<uint32_t>(any(a)) | static_cast<uint32_t>(any(b)) << 8 |
                        static_cast<uint32_t>(any(c)) << 16 | static_cast<uint32_t>(any(d)) << 24;
        return from + __builtin_ctz(bits);
    }
    while (from < n && !(x[from] > threshold)) ++from;
    return from;
}

int64_t count_above(const float* x, int64_t n, float threshold) {
    const __m256 limit = _mm256_set1_ps(threshold);
    __m256i counts = _mm256_setzero_si256();  // n < 2^31: no lane overflows
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 above = _mm256_cmp_ps(_mm256_loadu_ps(x + i), limit, _CMP_GT_OQ);
        counts = _mm256_sub_epi32(counts, _mm256_castps_si256(above));
    }
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), counts);
    int64_t count = 0;
    for (int32_t lane : lanes) count += lane;
    for (; i < n; ++i) count += x[i] > threshold;
    return count;
}

// z and its weight of 8 logits.
struct Weighed {
    __m256 z, weight;
};

Weighed weigh8(const float* x, __m256 max, __m256 temperature) {
    __m256 z = _mm256_div_ps(_mm256_sub_ps(_mm256_loadu_ps(x), max), temperature);
    return {z, vector_exp(z)};
}

double weight_sum(const float* x, int64_t n, float max, float temperature) {
    const __m256 m = _mm256_set1_ps(max), t = _mm256_set1_ps(temperature);
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 w = weigh8(x + i, m, t).weight;
        low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(w)));
        high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(w, 1)));
    }
    alignas(32) double v[8];
    _mm256_store_pd(v, low);
    _mm256_store_pd(v + 4, high);
    for (int j = 0; i < n; ++i, ++j) v[j] += static_cast<double>(vector_exp((x[i] - max) / temperature));
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

void weigh(const float* x, int64_t n, float max, float temperature, float min_weight, float* weights,
           uint16_t* buckets) {
    const __m256 m = _mm256_set1_ps(max), t = _mm256_set1_ps(temperature), floor = _mm256_set1_ps(min_weight);
    const __m256 step = _mm256_set1_ps(kBucketsPerUnit),
                 last = _mm256_set1_ps(static_cast<float>(kNumBuckets - 1));
    const __m256 sign = _mm256_set1_ps(-0.0f);
    auto eight = [&](const float* from, float* w, uint16_t* b) {
        Weighed v = weigh8(from, m, t);
        __m256 place = _mm256_min_ps(_mm256_mul_ps(_mm256_xor_ps(v.z, sign), step), last);
        __m256 out = _mm256_or_ps(_mm256_cmp_ps(v.weight, _mm256_setzero_ps(), _CMP_EQ_OQ),
                                  _mm256_cmp_ps(v.weight, floor, _CMP_LT_OQ));
        // All ones packs to 0xffff, kNoBucket.
        __m256i bucket = _mm256_or_si256(_mm256_cvttps_epi32(place), _mm256_castps_si256(out));
        __m256i packed = _mm256_packs_epi32(bucket, bucket);
        packed = _mm256_permute4x64_epi64(packed, 0x08);
        _mm256_storeu_ps(w, v.weight);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(b), _mm256_castsi256_si128(packed));
    };
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) eight(x + i, weights + i, buckets + i);
    if (i == n) return;
    float tail[8], w[8];
    uint16_t b[8];
    for (int64_t j = 0; j < 8; ++j) tail[j] = i + j < n ? x[i + j] : max;
    eight(tail, w, b);
    for (int64_t j = 0; i + j < n; ++j) {
        weights[i + j] = w[j];
        buckets[i + j] = b[j];
    }
}

void mask(float* x, int64_t n, const uint32_t* allowed) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256 minus_infinity = _mm256_set1_ps(-kInfinity);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint32_t byte = allowed[i / 32] >> (i % 32) & 0xffu;
        if (byte == 0xffu) continue;
        __m256i bits = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(byte)), bit);
        __m256 denied = _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, _mm256_setzero_si256()));
        _mm256_storeu_ps(x + i, _mm256_blendv_ps(_mm256_loadu_ps(x + i), minus_infinity, denied));
    }
    for (; i < n; ++i) {
        if (!(allowed[i / 32] >> (i % 32) & 1u)) x[i] = -kInfinity;
    }
}

}  // namespace

const SamplingScans sampling_scans{peak, next_above, count_above, weight_sum, weigh, mask};

}  // namespace edgewise::avx2
