// attention: softmax(q k^T * scale) v over a paged f16 KV cache, and the write of new keys and values into it.
//
// Cache layout, per layer (block = kKvBlock tokens, float16):
//   keys   [num_blocks][kv_heads][key_dim][kKvBlock]     transposed in the block: 8 or 16 tokens' scores advance in one vector
//   values [num_blocks][kv_heads][kKvBlock][value_dim]
// A slot is (block_table[i / kKvBlock], i % kKvBlock) for index i of the sequence.
//
// Contract (every ISA, bit for bit; generic/attention.cpp is the definition). For one query row and head:
//   The keys 0..i are cut at absolute multiples of kPartition. Within a partition, blocks of kKvBlock in ascending order:
//     s_t = fma chain over the key_dim ascending, from 0, of q[d] * f32(k[d][t]); then s_t * scale; then soft cap if any;
//           masked (future, outside window or chunk) = -inf
//     m'  = max(m, max_t s_t); c = exp(m - m'); p_t = exp(s_t - m'); l = l * c + sum_t p_t
//           (the sum: 8 lanes, lane j adds t = j, j+8, j+16, j+24 in order, then ((0+4)+(2+6))+((1+5)+(3+7)))
//     a[d] = fma chain over t ascending of p_t * f32(v[t][d]), onto a[d] * c
//     A block that is masked entirely is skipped. exp is vector_exp of numeric.h, the same polynomial in every ISA.
//   Partitions are folded in ascending order: M' = max(M, m); C = exp(M - M'); e = exp(m - M');
//     A[d] = fma(a[d], e, A[d] * C); L = fma(l, e, L * C)
//   A sink s of the head joins last: M' = max(M, s); L = L * exp(M - M') + exp(s - M'); A *= exp(M - M').
//   out[d] = A[d] / L.
// So a row's output depends on its own keys alone: not on tiles, threads, other rows or how the prompt was chunked.
#pragma once

#include "types.h"

namespace edgewise {

inline constexpr int64_t kKvBlock = 32;
inline constexpr int64_t kPartition = 256;  // keys; a multiple of kKvBlock

struct KvLayer {
    uint16_t* keys = nullptr;    // 64-byte aligned
    uint16_t* values = nullptr;  // 64-byte aligned
    int64_t kv_heads = 0;
    int64_t key_dim = 0;    // a multiple of 8
    int64_t value_dim = 0;  // a multiple of 8
};

struct AttentionArgs {
    KvLayer kv;
    const int32_t* block_table = nullptr;
    int64_t kv_head = 0;
    // Query tile: rows consecutive indices of one sequence, `group` heads that share this kv head, contiguous [group][key_dim].
    const float* q = nullptr;
    int64_t q_stride = 0;  // floats from row to row
    int64_t rows = 0;      // at most kMaxQueryRows
    int64_t group = 0;
    int64_t first_index = 0;  // sequence index of row 0; row r sees keys 0..first_index + r
    int64_t partition = 0;    // keys [partition * kPartition, ...)
    float scale = 1.0f;
    float soft_cap = 0.0f;  // 0: off
    int64_t window = 0;     // > 0: a row at index i sees keys > i - window
    int64_t chunk = 0;      // > 0: a row at index i sees keys >= i / chunk * chunk
    // Partial results; a row with no key in the partition gets max = -inf, sum = 0, acc = 0.
    float* max = nullptr;  // [rows][group]
    float* sum = nullptr;  // [rows][group]
    float* acc = nullptr;  // [rows][group][value_dim]
    float* scratch = nullptr;  // attention_scratch_floats(...) floats, 64-byte aligned, private to the thread
};

inline constexpr int64_t kMaxQueryRows = 64;

int64_t attention_scratch_floats(int64_t group, int64_t key_dim, int64_t value_dim);

// One partition of a query tile.
using AttentionFn = void (*)(const AttentionArgs& args);

// Folds partial `index` (of ascending partitions) into running state (run_max, run_sum, run_acc) of n = rows * group heads.
// The state starts as max = -inf, sum = 0, acc = 0.
using AttentionFoldFn = void (*)(int64_t n, int64_t value_dim, const float* max, const float* sum, const float* acc,
                                 float* run_max, float* run_sum, float* run_acc);

// Joins the sinks (f32 [group] or null) and divides: out[r * out_stride + g * value_dim + d].
using AttentionFinishFn = void (*)(int64_t rows, int64_t group, int64_t value_dim, const float* sinks, const float* run_max,
                                   const float* run_sum, const float* run_acc, float* out, int64_t out_stride);

// Writes k [kv_heads][key_dim] and v [kv_heads][value_dim] (f32, rounded to nearest even) of one token to sequence index `index`.
using KvWriteFn = void (*)(const KvLayer& kv, const int32_t* block_table, int64_t index, const float* k, const float* v);

}  // namespace edgewise
