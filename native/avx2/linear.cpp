#include "linear.h"

#include "dispatch.h"

namespace edgewise::avx2 {

void linear_quantized(const PackedMatrix& w, const QuantizedRows& x, int64_t token_begin, int64_t token_end,
                      int64_t block_begin, int64_t block_end, float* y, int64_t y_stride) {
    generic::linear_quantized(w, x, token_begin, token_end, block_begin, block_end, y, y_stride);
}

void linear_float(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t tokens, int64_t block_begin,
                  int64_t block_end, float* y, int64_t y_stride) {
    generic::linear_float(w, x, x_stride, tokens, block_begin, block_end, y, y_stride);
}

void quantize(const float* x, int64_t stride, int64_t begin, int64_t end, const QuantizedRows& out) {
    generic::quantize(x, stride, begin, end, out);
}

}  // namespace edgewise::avx2
