// The passes of sampling in plain loops: the definition that every instruction set reproduces.
#include "sampling.h"

#include <limits>

#include "numeric.h"

namespace edgewise::generic {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingScans::Peak peak(const float* x, int64_t n) {
    SamplingScans::Peak best{-kInfinity, 0, false};
    for (int64_t i = 0; i < n; ++i) {
        if (!(x[i] < kInfinity)) best.bad = true;
        if (x[i] > best.value) {
            best.value = x[i];
            best.index = i;
        }
    }
    return best;
}

int64_t next_above(const float* x, int64_t from, int64_t n, float threshold) {
    while (from < n && !(x[from] > threshold)) ++from;
    return from;
}

int64_t count_above(const float* x, int64_t n, float threshold) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += x[i] > threshold;
    return count;
}

double weight_sum(const float* x, int64_t n, float max, float temperature) {
    double v[8] = {};
    for (int64_t i = 0; i < n; ++i) v[i % 8] += static_cast<double>(vector_exp((x[i] - max) / temperature));
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

void weigh(const float* x, int64_t n, float max, float temperature, float min_weight, float* weights,
           uint16_t* buckets) {
    constexpr float kLast = static_cast<float>(kNumBuckets - 1);
    for (int64_t i = 0; i < n; ++i) {
        float z = (x[i] - max) / temperature;
        float w = vector_exp(z);
        float place = -z * kBucketsPerUnit;
        weights[i] = w;
        bool out = w == 0.0f || w < min_weight;
        buckets[i] = out ? kNoBucket : static_cast<uint16_t>(place < kLast ? place : kLast);
    }
}

void mask(float* x, int64_t n, const uint32_t* allowed) {
    for (int64_t i = 0; i < n; ++i) {
        if (!(allowed[i / 32] >> (i % 32) & 1u)) x[i] = -kInfinity;
    }
}

}  // namespace

const SamplingScans sampling_scans{peak, next_above, count_above, weight_sum, weigh, mask};

}  // namespace edgewise::generic
