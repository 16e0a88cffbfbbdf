// linear: y[t, n] = sum_k W[n, k] x[t, k], the product of packed weights and activations.
//
// Contract (the same for every ISA, bit for bit; generic/linear.cpp is the definition):
//   Quantised weights take quantised activations. Per output, with groups g of 32 in ascending order:
//       i   = sum of code_w * code_x over the group, exact in int32: offsets of codes removed; in Q6_K each
//             half of 16 times its int8 scale, together below 2^24 and so exact in f32 as well
//       acc = fma(float(i), dw_g * dx_g, acc)
//       acc = fma(m_g, dx_g * float(sum_g code_x), acc)       formats with a minimum; m_g carries its sign
//   dw_g and m_g are f32 values of the format's scale fields (Q4_K and Q5_K: d * sc and -(dmin * m), exact
//   in f32; Q6_K: d).
//   Float weights take f32 activations: acc = fma(w[n,k], x[t,k], acc), k ascending, one chain per output.
// So the value of y[t, n] depends on row n and token t alone: not on T, the row range or the thread.
//
// No kernel allocates, throws or synchronises. Unaligned x and y are allowed; W.data is 64-byte aligned.
#pragma once

#include "types.h"

namespace edgewise {

// Bytes of a matrix in packed form (a multiple of 64), and the permutation from and to the checkpoint's own
// row-major blocks. pack() reads exactly rows * source_row_bytes(format, cols) bytes. unpack_row writes f32
// [cols], equal to the GGUF dequantiser's values. The source row is made of GGUF blocks; where cols is not a
// multiple of the GGUF block these throw std::invalid_argument, as for unknown formats.
int64_t packed_bytes(Format format, Layout layout, int64_t rows, int64_t cols);
int64_t source_row_bytes(Format format, int64_t cols);
void pack(Format format, Layout layout, int64_t rows, int64_t cols, const uint8_t* source, uint8_t* packed);
void unpack(const PackedMatrix& w, uint8_t* source);  // the inverse of pack, byte for byte
void unpack_row(const PackedMatrix& w, int64_t row, float* out);

// Bytes that the three arrays of QuantizedRows need for `tokens` x `cols` (each rounded up to 64).
struct QuantizedRowsSize {
    int64_t codes, scales, sums;
};
QuantizedRowsSize quantized_rows_size(int64_t tokens, int64_t cols);

// x: f32 [tokens, cols], token t at x + t * stride. Scale = max|x| / 127 of the group, code =
// round-half-even(x / scale) computed as x * (127 / max|x|), clamped to [-127, 127]; a group that is all
// zero, or so small (3.7e-37) that 127 / max|x| overflows, has scale and codes 0. NaN or Inf anywhere in a
// group makes that group's scale NaN and its codes 0, so that it stays visible in the output. Reads and
// writes tokens [begin, end) only, out.groups groups each (zero beyond cols): calls for disjoint ranges may
// run at once.
using QuantizeFn = void (*)(const float* x, int64_t stride, int64_t begin, int64_t end,
                            const QuantizedRows& out);

// Row blocks [block_begin, block_end) for tokens [token_begin, token_end) (token_begin a multiple of
// kTokenBlock); w.cols == x.cols. Row n of token t goes to
// y[(t - token_begin) * y_stride + n - block_begin * interleave]; rows beyond w.rows are not written. From
// some five tokens on, ranges of a multiple of kBlockUnit row blocks are up to 30 % faster than single ones.
inline constexpr int64_t kBlockUnit = 8;

using LinearQuantizedFn = void (*)(const PackedMatrix& w, const QuantizedRows& x, int64_t token_begin,
                                   int64_t token_end, int64_t block_begin, int64_t block_end, float* y,
                                   int64_t y_stride);
using LinearFloatFn = void (*)(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t tokens,
                               int64_t block_begin, int64_t block_end, float* y, int64_t y_stride);

}  // namespace edgewise
