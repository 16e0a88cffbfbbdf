// Row-wise operations between the matrix products: norms, activations, residual sums, rotary embedding.
//
// Contract: every function treats a row on its own. Sums over a row use 8 lanes (lane j takes k = j mod 8
// ascending, as fma chains for sums of squares; a tail shorter than 8 fills the lanes from 0) and the fixed
// tree
// ((0+4)+(2+6))+((1+5)+(3+7)). exp and tanh come from numeric.h, the activations from activations.h; they are
// the same polynomials in every ISA. generic/elementwise.cpp is the definition; ISA versions equal it bit for
// bit (which NaN a NaN is, is left open). x and y may be the same memory; no alignment is asked for.
#pragma once

#include "types.h"

namespace edgewise {

enum class Activation : int32_t { Silu, GeluTanh, Gelu, Relu2 };

// y = (x * (1 / sqrt(mean(x^2) + eps))) * weight (weight null: ones)
using RmsNormFn = void (*)(const float* x, const float* weight, float eps, int64_t width, float* y);
// y = fma((x - mean) * (1 / sqrt(var + eps)), weight, bias) (bias null: zeros), var = mean((x - mean)^2)
using LayerNormFn = void (*)(const float* x, const float* weight, const float* bias, float eps, int64_t width,
                             float* y);
// y = f(gate) * up
using GatedActivationFn = void (*)(Activation kind, const float* gate, const float* up, int64_t width,
                                   float* y);
using ActivationFn = void (*)(Activation kind, const float* x, int64_t width, float* y);
// y = fma(x, scale, y): plain addition when scale is 1
using AddFn = void (*)(const float* x, float scale, int64_t width, float* y);
// y = cap * tanh(x / cap)
using SoftCapFn = void (*)(const float* x, float cap, int64_t width, float* y);
// cos_sin [pairs][2] of one position: angle_i = position * inv_freq[i] in double, cos and sin times `scale`,
// rounded once.
using RopeTableFn = void (*)(double position, const double* inv_freq, int64_t pairs, float scale,
                             float* cos_sin);
// Rotates the first 2 * pairs components of each of `heads` vectors of head_dim in place. interleaved: pairs
// (2i, 2i+1), else (i, i + pairs).  a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin)
using RopeFn = void (*)(float* x, int64_t heads, int64_t head_dim, int64_t pairs, bool interleaved,
                        const float* cos_sin);

}  // namespace edgewise
