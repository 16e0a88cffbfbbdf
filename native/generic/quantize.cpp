#include <algorithm>
#include <cmath>

#include "linear.h"
#include "quantized_rows.h"

namespace edgewise::generic {
namespace {

// x: f32 [n], n <= 32; the rest of the group counts as zero.
void quantize_group(const float* x, int64_t n, int8_t* codes, float* scale, int16_t* sums) {
    float largest = 0.0f;
    bool finite = true;
    for (int64_t k = 0; k < n; ++k) {
        largest = std::max(largest, std::fabs(x[k]));
        finite = finite && std::isfinite(x[k]);
    }
    const float inverse = 127.0f / largest;
    const bool zero = !finite || !std::isfinite(inverse);
    *scale = !finite ? std::nanf("") : zero ? 0.0f : largest / 127.0f;
    sums[0] = sums[1] = 0;
    for (int64_t k = 0; k < kGroup; ++k) {
        const float scaled = zero || k >= n ? 0.0f : std::nearbyint(x[k] * inverse);
        codes[k] = static_cast<int8_t>(std::clamp(scaled, -127.0f, 127.0f));
        sums[k / 16] = static_cast<int16_t>(sums[k / 16] + codes[k]);
    }
}

}  // namespace

void quantize(const float* x, int64_t stride, int64_t begin, int64_t end, const QuantizedRows& out) {
    for (int64_t t = begin; t < end; ++t) {
        const TokenBlock block = token_block(out, t / kTokenBlock);
        for (int64_t g = 0; g < out.groups; ++g) {
            const int64_t cell = g * block.tokens + t % kTokenBlock;
            const int64_t n = std::clamp<int64_t>(out.cols - g * kGroup, 0, kGroup);
            quantize_group(x + t * stride + g * kGroup, n, block.codes + cell * kGroup, block.scales + cell,
                           block.sums + cell * 2);
        }
    }
}

}  // namespace edgewise::generic
