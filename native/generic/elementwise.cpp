// The definition of the element-wise kernels, in plain loops.
#include "elementwise.h"

#include <cmath>

#include "activations.h"
#include "dispatch.h"

namespace edgewise::generic {

namespace {

constexpr int64_t kLanes = 8;

template <class Function>
void map(const float* x, int64_t width, float* y, Function f) {
    for (int64_t k = 0; k < width; k++) y[k] = f(x[k]);
}

template <class Function>
void map_gated(const float* gate, const float* up, int64_t width, float* y, Function f) {
    for (int64_t k = 0; k < width; k++) y[k] = f(gate[k]) * up[k];
}

float inverse_root(float mean_square, float eps) { return 1.0f / std::sqrt(mean_square + eps); }

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, int64_t width, float* y) {
    float lanes[kLanes] = {};
    for (int64_t k = 0; k < width; k++) lanes[k % kLanes] = std::fma(x[k], x[k], lanes[k % kLanes]);
    float r = inverse_root(sum_lanes(lanes) / static_cast<float>(width), eps);
    for (int64_t k = 0; k < width; k++) y[k] = weight ? (x[k] * r) * weight[k] : x[k] * r;
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t width, float* y) {
    float sums[kLanes] = {}, squares[kLanes] = {};
    for (int64_t k = 0; k < width; k++) sums[k % kLanes] += x[k];
    float mean = sum_lanes(sums) / static_cast<float>(width);
    for (int64_t k = 0; k < width; k++) {
        float d = x[k] - mean;
        squares[k % kLanes] = std::fma(d, d, squares[k % kLanes]);
    }
    float r = inverse_root(sum_lanes(squares) / static_cast<float>(width), eps);
    for (int64_t k = 0; k < width; k++) {
        y[k] = std::fma((x[k] - mean) * r, weight[k], bias ? bias[k] : 0.0f);
    }
}

void activation(Activation kind, const float* x, int64_t width, float* y) {
    switch (kind) {
        case Activation::Silu:
            return map(x, width, y, silu<float>);
        case Activation::GeluTanh:
            return map(x, width, y, gelu_tanh<float>);
        case Activation::Gelu:
            return map(x, width, y, gelu<float>);
        case Activation::Relu2:
            return map(x, width, y, relu2<float>);
    }
}

void gated_activation(Activation kind, const float* gate, const float* up, int64_t width, float* y) {
    switch (kind) {
        case Activation::Silu:
            return map_gated(gate, up, width, y, silu<float>);
        case Activation::GeluTanh:
            return map_gated(gate, up, width, y, gelu_tanh<float>);
        case Activation::Gelu:
            return map_gated(gate, up, width, y, gelu<float>);
        case Activation::Relu2:
            return map_gated(gate, up, width, y, relu2<float>);
    }
}

void add(const float* x, float scale, int64_t width, float* y) {
    for (int64_t k = 0; k < width; k++) y[k] = std::fma(x[k], scale, y[k]);
}

void soft_cap(const float* x, float cap, int64_t width, float* y) {
    for (int64_t k = 0; k < width; k++) y[k] = cap * vector_tanh(x[k] / cap);
}

void rope_table(double position, const double* inv_freq, int64_t pairs, float scale, float* cos_sin) {
    for (int64_t i = 0; i < pairs; i++) {
        double angle = position * inv_freq[i];
        cos_sin[2 * i] = static_cast<float>(std::cos(angle) * scale);
        cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle) * scale);
    }
}

void rope(float* x, int64_t heads, int64_t head_dim, int64_t pairs, bool interleaved, const float* cos_sin) {
    for (int64_t h = 0; h < heads; h++) {
        float* head = x + h * head_dim;
        for (int64_t i = 0; i < pairs; i++) {
            float& first = head[interleaved ? 2 * i : i];
            float& second = head[interleaved ? 2 * i + 1 : i + pairs];
            float a = first, b = second, cos = cos_sin[2 * i], sin = cos_sin[2 * i + 1];
            first = std::fma(a, cos, -(b * sin));
            second = std::fma(b, cos, a * sin);
        }
    }
}

}  // namespace edgewise::generic
