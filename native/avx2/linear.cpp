// linear.h for quantised weights on AVX2 + FMA + F16C, layout R8.
#include <algorithm>

#include "avx2/linear_parts.h"
#include "formats.h"

namespace edgewise::avx2 {

// Token blocks are the outer loop: 64 tokens of activations stay in L2 (64 * K bytes) while the weights pass
// by.
void linear_quantized(const PackedMatrix& w, const QuantizedRows& x, int64_t token_begin, int64_t token_end,
                      int64_t block_begin, int64_t block_end, float* y, int64_t y_stride) {
    const int64_t block_bytes = w.interleave() * w.cols / traits(w.format).cols * traits(w.format).bytes;
    const uint8_t* first = w.data + block_begin * block_bytes;
    const int64_t rows = w.rows - block_begin * w.interleave(), blocks = block_end - block_begin;
    for (int64_t begin = token_begin; begin < token_end; begin += kTokenBlock) {
        const TokenBlock block = token_block(x, begin / kTokenBlock);
        const int64_t tokens = std::min(kTokenBlock, token_end - begin);
        float* out = y + (begin - token_begin) * y_stride;
        if (block.tokens <= kFewTokens && tokens == block.tokens)
            linear_few(w.format, first, w.cols, rows, blocks, block, out, y_stride);
        else
            linear_panels(w.format, first, w.cols, rows, blocks, block, tokens, out, y_stride);
    }
}

}  // namespace edgewise::avx2
