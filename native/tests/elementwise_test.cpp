// Element-wise kernels: every instruction set against the generic definition bit for bit, over lengths,
// misalignments and odd values, with canaries behind each output; and the definition against double
// precision.
#include "elementwise.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "activations.h"
#include "check.h"
#include "dispatch.h"

using namespace edgewise;

namespace {

constexpr int64_t kLengths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,  12,  13,  14,
                                15, 16, 17, 23, 29, 31, 37, 53, 64, 97, 127, 255, 576, 1009};
constexpr float kCanary = -12345.75f;
constexpr int64_t kPad = 16;
constexpr Activation kActivations[] = {Activation::Silu, Activation::GeluTanh, Activation::Gelu,
                                       Activation::Relu2};

using Row = std::vector<float>;

bool same(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

struct Source {
    std::mt19937 engine;

    explicit Source(uint32_t seed) : engine(seed) {}
    // Mostly normal numbers; with `odd` also NaN, infinities, subnormals, huge ones and both zeros.
    Row row(int64_t n, bool odd) {
        static constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(),
                                         std::numeric_limits<float>::infinity(),
                                         -std::numeric_limits<float>::infinity(),
                                         1e-42f,
                                         -1e-42f,
                                         3e38f,
                                         -0.0f,
                                         0.0f,
                                         -100.0f,
                                         90.0f};
        std::normal_distribution<float> normal(0.0f, 3.0f);
        Row values(static_cast<size_t>(n));
        for (float& v : values)
            v = odd && engine() % 8 == 0 ? kOdd[engine() % std::size(kOdd)] : normal(engine);
        return values;
    }
};

// A copy of a row at an odd address, between canaries.
struct Guarded {
    Row memory;
    int64_t offset, n;

    Guarded(const Row& values, int64_t misalignment)
        : memory(values.size() + 2 * kPad, kCanary),
          offset(kPad / 2 + misalignment),
          n(static_cast<int64_t>(values.size())) {
        std::copy(values.begin(), values.end(), memory.begin() + offset);
    }
    float* data() { return memory.data() + offset; }
    bool intact() const {
        for (int64_t i = 0; i < static_cast<int64_t>(memory.size()); i++) {
            if ((i < offset || i >= offset + n) && memory[static_cast<size_t>(i)] != kCanary) return false;
        }
        return true;
    }
};

// An operation that changes y in place, given two further inputs of the same length.
using Operation = std::function<void(const Kernels&, const float* a, const float* b, float* y, int64_t n)>;

void compare(const Kernels& kernels, const std::string& name, const Operation& operation) {
    for (int64_t n : kLengths) {
        for (int64_t misalignment = 0; misalignment < 4; misalignment++) {
            for (bool odd : {false, true}) {
                auto seed = static_cast<uint32_t>(n * 8 + misalignment * 2 + odd);
                Source source(seed);
                Guarded a(source.row(n, odd), misalignment), b(source.row(n, odd), 3 - misalignment);
                Row start = source.row(n, odd);
                Guarded expected(start, 0), got(start, misalignment);
                operation(generic_kernels(), a.data(), b.data(), expected.data(), n);
                operation(kernels, a.data(), b.data(), got.data(), n);
                std::string where = std::string(kernels.isa) + " " + name + " n=" + std::to_string(n) +
                                    " seed=" + std::to_string(seed);
                CHECK(got.intact() && a.intact() && b.intact(), where + ": wrote beyond the row");
                for (int64_t i = 0; i < n; i++) {
                    CHECK(same(expected.data()[i], got.data()[i]),
                          where + " at " + std::to_string(i) + ": " + std::to_string(got.data()[i]) +
                              " is not " + std::to_string(expected.data()[i]));
                }
            }
        }
    }
}

void compare_all(const Kernels& kernels) {
    compare(kernels, "rms_norm", [](const Kernels& k, const float* a, const float* b, float* y, int64_t n) {
        k.rms_norm(a, b, 1e-5f, n, y);
    });
    compare(kernels, "rms_norm without weight",
            [](const Kernels& k, const float* a, const float*, float* y, int64_t n) {
                k.rms_norm(a, nullptr, 1e-6f, n, y);
            });
    compare(kernels, "rms_norm in place",
            [](const Kernels& k, const float*, const float* b, float* y, int64_t n) {
                k.rms_norm(y, b, 1e-5f, n, y);
            });
    compare(kernels, "layer_norm", [](const Kernels& k, const float* a, const float* b, float* y, int64_t n) {
        k.layer_norm(y, a, b, 1e-5f, n, y);
    });
    compare(kernels, "layer_norm without bias",
            [](const Kernels& k, const float* a, const float* b, float* y, int64_t n) {
                k.layer_norm(a, b, nullptr, 1e-5f, n, y);
            });
    for (float scale : {1.0f, -0.3f}) {
        compare(kernels, "add", [=](const Kernels& k, const float* a, const float*, float* y, int64_t n) {
            k.add(a, scale, n, y);
        });
    }
    compare(kernels, "soft_cap", [](const Kernels& k, const float* a, const float*, float* y, int64_t n) {
        k.soft_cap(a, 2.5f, n, y);
    });
    for (Activation kind : kActivations) {
        std::string name = "activation " + std::to_string(static_cast<int>(kind));
        compare(kernels, name, [=](const Kernels& k, const float* a, const float*, float* y, int64_t n) {
            k.activation(kind, a, n, y);
        });
        compare(kernels, "gated " + name,
                [=](const Kernels& k, const float* a, const float* b, float* y, int64_t n) {
                    k.gated_activation(kind, a, b, n, y);
                });
    }
    for (bool interleaved : {false, true}) {
        // Three heads fill the row as far as they go; every number of pairs that fits is rotated in turn.
        compare(kernels, interleaved ? "rope interleaved" : "rope",
                [=](const Kernels& k, const float*, const float*, float* y, int64_t n) {
                    int64_t head_dim = n / 3;
                    std::vector<double> inv_freq;
                    for (int64_t pairs = 0; pairs <= std::min<int64_t>(head_dim / 2, 19); pairs++) {
                        std::vector<float> cos_sin(static_cast<size_t>(2 * pairs));
                        k.rope_table(1234.0, inv_freq.data(), pairs, 1.0f, cos_sin.data());
                        k.rope(y, 3, head_dim, pairs, interleaved, cos_sin.data());
                        inv_freq.push_back(std::pow(10000.0, -0.07 * static_cast<double>(pairs)));
                    }
                });
    }
}

double exact(Activation kind, double x) {
    switch (kind) {
        case Activation::Silu:
            return x / (1.0 + std::exp(-x));
        case Activation::GeluTanh:
            return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
        case Activation::Gelu:
            return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
        case Activation::Relu2:
            return x > 0.0 ? x * x : 0.0;
    }
    return 0.0;
}

// Every 997th float of [-20, 20], and the accuracy that activations.h promises: 4e-7 and, above -3, 10 ulp.
void activations_are_accurate() {
    for (Activation kind : kActivations) {
        for (float sign : {1.0f, -1.0f}) {
            uint32_t last = std::bit_cast<uint32_t>(20.0f);
            for (uint32_t bits = std::bit_cast<uint32_t>(1e-6f); bits < last; bits += 997) {
                float x = sign * std::bit_cast<float>(bits), y = 0.0f;
                generic_kernels().activation(kind, &x, 1, &y);
                double want = exact(kind, x), error = std::fabs(y - want);
                double bound = x > -3.0f ? 10.0 * std::fabs(want) * 0x1p-23 : 4e-7;
                CHECK(error <= bound, "activation " + std::to_string(static_cast<int>(kind)) + " of " +
                                          std::to_string(x) + " is off by " +
                                          std::to_string(error / std::fabs(want) * 0x1p23) + " ulp");
            }
        }
    }
}

void exp_and_tanh_are_accurate() {
    for (float x = -87.0f; x < 88.0f; x += 0.00173f) {
        double ulp = std::fabs(vector_exp(x) / std::exp(static_cast<double>(x)) - 1.0) * 0x1p23;
        CHECK(ulp <= 2.0, "exp of " + std::to_string(x) + " is off by " + std::to_string(ulp) + " ulp");
    }
    for (float x = -12.0f; x < 12.0f; x += 0.000173f) {
        double want = std::tanh(static_cast<double>(x));
        double ulp = want == 0.0 ? 0.0 : std::fabs(vector_tanh(x) / want - 1.0) * 0x1p23;
        CHECK(ulp <= 3.0, "tanh of " + std::to_string(x) + " is off by " + std::to_string(ulp) + " ulp");
    }
    CHECK(vector_exp(-std::numeric_limits<float>::infinity()) == 0.0f, "exp(-inf) is 0");
    CHECK(vector_exp(0.0f) == 1.0f, "exp(0) is 1");
    CHECK(vector_exp(200.0f) > 2e38f, "exp(200) is as large as it gets");
    CHECK(std::isnan(vector_exp(std::nanf(""))), "exp(NaN) is NaN");
}

void norms_are_accurate() {
    Source source(7);
    for (int64_t n : kLengths) {
        if (n == 0) continue;
        Row x = source.row(n, false), weight = source.row(n, false), bias = source.row(n, false), y(x.size());
        double sum = 0.0, squares = 0.0, variance = 0.0;
        for (float v : x) sum += v, squares += static_cast<double>(v) * v;
        double mean = sum / static_cast<double>(n);
        for (float v : x) variance += (v - mean) * (v - mean);
        generic_kernels().rms_norm(x.data(), weight.data(), 1e-3f, n, y.data());
        for (size_t i = 0; i < x.size(); i++) {
            double want = x[i] * weight[i] / std::sqrt(squares / static_cast<double>(n) + 1e-3f);
            CHECK(std::fabs(y[i] - want) <= 1e-5 * (1.0 + std::fabs(want)),
                  "rms_norm n=" + std::to_string(n));
        }
        generic_kernels().layer_norm(x.data(), weight.data(), bias.data(), 1e-3f, n, y.data());
        for (size_t i = 0; i < x.size(); i++) {
            double want =
                (x[i] - mean) * weight[i] / std::sqrt(variance / static_cast<double>(n) + 1e-3f) + bias[i];
            CHECK(std::fabs(y[i] - want) <= 1e-5 * (1.0 + std::fabs(want)),
                  "layer_norm n=" + std::to_string(n));
        }
    }
}

void rope_turns_pairs() {
    double inv_freq[] = {0.5, 0.01};
    float cos_sin[4];
    generic_kernels().rope_table(3.0, inv_freq, 2, 1.0f, cos_sin);
    for (bool interleaved : {false, true}) {
        float x[] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f}, before[5];
        std::copy_n(x, 5, before);
        generic_kernels().rope(x, 1, 5, 2, interleaved, cos_sin);
        for (int i = 0; i < 2; i++) {
            int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + 2;
            double angle = 3.0 * inv_freq[i];
            double want_a = before[a] * std::cos(angle) - before[b] * std::sin(angle);
            double want_b = before[b] * std::cos(angle) + before[a] * std::sin(angle);
            CHECK(std::fabs(x[a] - want_a) < 1e-6 && std::fabs(x[b] - want_b) < 1e-6,
                  "rope pair " + std::to_string(i));
        }
        CHECK(x[4] == 5.0f, "components beyond the pairs stay");
    }
}

}  // namespace

int main() {
    for (const std::string& isa : available_isas()) compare_all(kernels_for(isa));
    activations_are_accurate();
    exp_and_tanh_are_accurate();
    norms_are_accurate();
    rope_turns_pairs();
    return edgewise::testing::report("elementwise");
}
