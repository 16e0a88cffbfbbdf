// The definition of linear.h in plain loops, for every layout.
#include "linear.h"

#include <algorithm>
#include <cmath>

#include "blocks.h"
#include "quantized_rows.h"

namespace edgewise::generic {
namespace {

// One group of 32 columns of one row: the integer codes with offset removed, and its f32 scale and minimum.
struct RowGroup {
    int32_t codes[32];
    int32_t half_scales[2];  // 1 but for Q6_K
    float scale, minimum;
};

void decode_group(Format format, const RowBlock& block, int64_t group, RowGroup& out) {
    const FormatTraits& t = traits(format);
    const uint8_t* codes = block.codes + group * 32;
    for (int k = 0; k < 32; ++k)
        out.codes[k] = t.bits == 8 ? static_cast<int8_t>(codes[k]) : codes[k] - t.offset;
    for (int h = 0; h < 2; ++h)
        out.half_scales[h] = format == Format::Q6_K ? static_cast<int8_t>(block.scales[group * 2 + h]) : 1;
    out.scale = group_scale(format, block, group);
    out.minimum = group_minimum(format, block, group);
}

int32_t dot16(const int32_t* w, const int8_t* x) {
    int32_t sum = 0;
    for (int k = 0; k < 16; ++k) sum += w[k] * x[k];
    return sum;
}

// Adds group g of one row to the accumulators of the block's tokens [0, tokens).
void add_group(const RowGroup& w, bool minimum, const TokenBlock& x, int64_t g, int64_t tokens, float* acc) {
    for (int64_t t = 0; t < tokens; ++t) {
        const int64_t cell = g * x.tokens + t;
        const int8_t* codes = x.codes + cell * kGroup;
        const int32_t i =
            w.half_scales[0] * dot16(w.codes, codes) + w.half_scales[1] * dot16(w.codes + 16, codes + 16);
        acc[t] = std::fma(static_cast<float>(i), w.scale * x.scales[cell], acc[t]);
        if (minimum) {
            const int32_t sum = x.sums[cell * 2] + x.sums[cell * 2 + 1];
            acc[t] = std::fma(w.minimum, x.scales[cell] * static_cast<float>(sum), acc[t]);
        }
    }
}

float load_float(Format format, const uint8_t* element) {
    if (format == Format::F16) return half_to_float(load_u16(element));
    if (format == Format::BF16) return bfloat_to_float(load_u16(element));
    float value;
    std::memcpy(&value, element, sizeof value);
    return value;
}

}  // namespace

void linear_quantized(const PackedMatrix& w, const QuantizedRows& x, int64_t token_begin, int64_t token_end,
                      int64_t block_begin, int64_t block_end, float* y, int64_t y_stride) {
    const FormatTraits& t = traits(w.format);
    const int64_t lanes = w.interleave();
    const int64_t blocks = w.cols / t.cols, block_bytes = lanes * t.bytes;
    const int64_t row_end = std::min(block_end * lanes, w.rows);
    RowBlock block;
    RowGroup group;
    for (int64_t begin = token_begin; begin < token_end; begin += kTokenBlock) {
        const TokenBlock tokens = token_block(x, begin / kTokenBlock);
        const int64_t n = std::min(kTokenBlock, token_end - begin);
        for (int64_t row = block_begin * lanes; row < row_end; ++row) {
            float acc[kTokenBlock] = {};
            for (int64_t b = 0; b < blocks; ++b) {
                load_lane(w.format, lanes, row % lanes, w.data + (row / lanes * blocks + b) * block_bytes,
                          block);
                for (int64_t g = 0; g < t.cols / kGroup; ++g) {
                    decode_group(w.format, block, g, group);
                    add_group(group, t.minimum, tokens, b * t.cols / kGroup + g, n, acc);
                }
            }
            float* out = y + (begin - token_begin) * y_stride + row - block_begin * lanes;
            for (int64_t i = 0; i < n; ++i) out[i * y_stride] = acc[i];
        }
    }
}

void linear_float(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t tokens,
                  int64_t block_begin, int64_t block_end, float* y, int64_t y_stride) {
    const int64_t lanes = w.interleave(), size = traits(w.format).bytes;
    const int64_t row_end = std::min(block_end * lanes, w.rows);
    for (int64_t row = block_begin * lanes; row < row_end; ++row) {
        const uint8_t* elements = w.data + (row / lanes * w.cols * lanes + row % lanes) * size;
        for (int64_t t = 0; t < tokens; ++t) {
            float acc = 0.0f;
            for (int64_t k = 0; k < w.cols; ++k)
                acc = std::fma(load_float(w.format, elements + k * lanes * size), x[t * x_stride + k], acc);
            y[t * y_stride + row - block_begin * lanes] = acc;
        }
    }
}

}  // namespace edgewise::generic
