// attention: softmax(q k^T * scale) v over a paged f16 KV cache, and the write of new keys and values into
// it.
//
// Cache layout, per layer (block = kKvBlock tokens, float16):
//   keys   [num_blocks][kv_heads][key_dim][kKvBlock]     transposed in the block: 8 or 16 tokens' scores
//   advance in one vector values [num_blocks][kv_heads][kKvBlock][value_dim]
// A slot is (block_table[i / kKvBlock], i % kKvBlock) for index i of the sequence.
//
// Contract (every ISA, bit for bit; generic/attention.cpp is the definition). For one query row and head:
//   The keys the row sees (not future, inside window and chunk) are cut at absolute multiples of kPartition.
//   Within a partition:
//     s_t  = (fma chain over the key_dim ascending, from 0, of q[d] * f32(k[d][t])) * scale; then the soft
//     cap, if any:
//            cap * vector_tanh(s / cap)
//     m    = max_t s_t, NaNs passed over; p_t = vector_exp(s_t - m)
//     l    = sum_t p_t in 8 lanes: lane j adds t = j mod 8 ascending, then ((0+4)+(2+6))+((1+5)+(3+7))
//     a[d] = fma chain over t ascending, from 0, of p_t * f32(v[t][d])
//     A key the row does not see takes no part: whatever its bytes are, NaN too, they change nothing.
//   Partitions are folded in ascending order, those without a visible key (l = 0) left out: M' = max(M, m); C
//   = exp(M - M');
//     e = exp(m - M'); A[d] = fma(a[d], e, A[d] * C); L = fma(l, e, L * C)
//   A sink s of the head joins last: M' = max(M, s); L = fma(L, exp(M - M'), exp(s - M')); A[d] *= exp(M -
//   M'). out[d] = A[d] / L.
// So a row's output depends on its own keys alone: not on tiles, threads, other rows or how the prompt was
// chunked. A score of NaN or +infinity makes the row's output NaN. The sign of a zero m and the payload of a
// NaN are open.
//
// One maximum for a whole partition, rather than a running one per block, keeps the sums of p v in registers
// or L1 without rescaling, and lets the exponentials of 256 keys run as one loop.
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
    // Query tile: rows consecutive indices of one sequence, `group` heads that share this kv head, contiguous
    // [group][key_dim].
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
    float* max = nullptr;      // [rows][group]
    float* sum = nullptr;      // [rows][group]
    float* acc = nullptr;      // [rows][group][value_dim]
    float* scratch = nullptr;  // attention_scratch_floats(...) floats, 64-byte aligned, private to the thread
};

inline constexpr int64_t kMaxQueryRows = 64;
// Query vectors (row, head) whose scores of a partition are held at once: 128 KiB, which leaves room in an L2
// of 512 KiB for their queries and accumulators up to a head size of 256.
inline constexpr int64_t kScoreVectors = 128;

int64_t attention_scratch_floats(int64_t group, int64_t key_dim, int64_t value_dim);

// One partition of a query tile.
using AttentionFn = void (*)(const AttentionArgs& args);

// Folds partial `index` (of ascending partitions) into running state (run_max, run_sum, run_acc) of n = rows
// * group heads. The state starts as max = -inf, sum = 0, acc = 0.
using AttentionFoldFn = void (*)(int64_t n, int64_t value_dim, const float* max, const float* sum,
                                 const float* acc, float* run_max, float* run_sum, float* run_acc);

// Joins the sinks (f32 [group] or null) and divides: out[r * out_stride + g * value_dim + d].
using AttentionFinishFn = void (*)(int64_t rows, int64_t group, int64_t value_dim, const float* sinks,
                                   const float* run_max, const float* run_sum, const float* run_acc,
                                   float* out, int64_t out_stride);

// Writes k [kv_heads][key_dim] and v [kv_heads][value_dim] (f32, rounded to nearest even) of one token to
// sequence index `index`.
using KvWriteFn = void (*)(const KvLayer& kv, const int32_t* block_table, int64_t index, const float* k,
                           const float* v);

}  // namespace edgewise
