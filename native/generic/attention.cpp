// attention in plain loops: the definition that every instruction set reproduces bit for bit.
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dispatch.h"
#include "numeric.h"

namespace edgewise {

int64_t attention_scratch_floats(int64_t, int64_t key_dim, int64_t value_dim) {
    return kKvBlock * std::max(key_dim, value_dim) + kScoreVectors * kPartition;
}

namespace generic {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Keys [begin, end) of the sequence that the row at `index` sees within the partition.
struct Range {
    int64_t begin, end;
};

Range visible_keys(const AttentionArgs& args, int64_t index) {
    int64_t begin = args.partition * kPartition;
    int64_t end = std::min(begin + kPartition, index + 1);
    if (args.window > 0) begin = std::max(begin, index - args.window + 1);
    if (args.chunk > 0) begin = std::max(begin, index / args.chunk * args.chunk);
    return {begin, end};
}

const uint16_t* key_of(const AttentionArgs& args, int64_t index) {
    const KvLayer& kv = args.kv;
    int64_t block = args.block_table[index / kKvBlock];
    return kv.keys + (block * kv.kv_heads + args.kv_head) * kv.key_dim * kKvBlock + index % kKvBlock;
}

const uint16_t* value_of(const AttentionArgs& args, int64_t index) {
    const KvLayer& kv = args.kv;
    int64_t block = args.block_table[index / kKvBlock];
    return kv.values + ((block * kv.kv_heads + args.kv_head) * kKvBlock + index % kKvBlock) * kv.value_dim;
}

float score(const AttentionArgs& args, const float* q, int64_t index) {
    const uint16_t* key = key_of(args, index);
    float s = 0.0f;
    for (int64_t d = 0; d < args.kv.key_dim; ++d) s = std::fma(q[d], half_to_float(key[d * kKvBlock]), s);
    s *= args.scale;
    return args.soft_cap > 0.0f ? args.soft_cap * vector_tanh(s / args.soft_cap) : s;
}

void attend(const AttentionArgs& args, Range keys, const float* q, float* max, float* sum, float* acc) {
    float* p = args.scratch;  // [kPartition], from the partition's first key
    int64_t origin = args.partition * kPartition;
    *max = kMinusInfinity;
    std::fill_n(acc, args.kv.value_dim, 0.0f);
    for (int64_t t = keys.begin; t < keys.end; ++t) {
        p[t - origin] = score(args, q, t);
        *max = p[t - origin] > *max ? p[t - origin] : *max;
    }
    float lanes[8] = {};
    for (int64_t t = keys.begin; t < keys.end; ++t) {
        float weight = vector_exp(p[t - origin] - *max);
        lanes[t % 8] += weight;
        const uint16_t* value = value_of(args, t);
        for (int64_t d = 0; d < args.kv.value_dim; ++d)
            acc[d] = std::fma(weight, half_to_float(value[d]), acc[d]);
    }
    *sum = sum_lanes(lanes);
}

}  // namespace

void attention(const AttentionArgs& args) {
    for (int64_t r = 0; r < args.rows; ++r) {
        Range keys = visible_keys(args, args.first_index + r);
        for (int64_t g = 0; g < args.group; ++g) {
            int64_t n = r * args.group + g;
            attend(args, keys, args.q + r * args.q_stride + g * args.kv.key_dim, args.max + n, args.sum + n,
                   args.acc + n * args.kv.value_dim);
        }
    }
}

void attention_fold(int64_t n, int64_t value_dim, const float* max, const float* sum, const float* acc,
                    float* run_max, float* run_sum, float* run_acc) {
    for (int64_t i = 0; i < n; ++i) {
        if (sum[i] == 0.0f) continue;
        float top = std::max(run_max[i], max[i]);
        float keep = vector_exp(run_max[i] - top);
        float join = vector_exp(max[i] - top);
        run_max[i] = top;
        run_sum[i] = std::fma(sum[i], join, run_sum[i] * keep);
        float* to = run_acc + i * value_dim;
        const float* from = acc + i * value_dim;
        for (int64_t d = 0; d < value_dim; ++d) to[d] = std::fma(from[d], join, to[d] * keep);
    }
}

void attention_finish(int64_t rows, int64_t group, int64_t value_dim, const float* sinks,
                      const float* run_max, const float* run_sum, const float* run_acc, float* out,
                      int64_t out_stride) {
    for (int64_t i = 0; i < rows * group; ++i) {
        float keep = 1.0f, total = run_sum[i];
        if (sinks) {
            float sink = sinks[i % group];
            float top = std::max(run_max[i], sink);
            keep = vector_exp(run_max[i] - top);
            total = std::fma(total, keep, vector_exp(sink - top));
        }
        const float* from = run_acc + i * value_dim;
        float* to = out + i / group * out_stride + i % group * value_dim;
        for (int64_t d = 0; d < value_dim; ++d) to[d] = from[d] * keep / total;
    }
}

void kv_write(const KvLayer& kv, const int32_t* block_table, int64_t index, const float* k, const float* v) {
    int64_t block = block_table[index / kKvBlock], offset = index % kKvBlock;
    uint16_t* keys = kv.keys + block * kv.kv_heads * kv.key_dim * kKvBlock + offset;
    for (int64_t i = 0; i < kv.kv_heads * kv.key_dim; ++i) keys[i * kKvBlock] = float_to_half(k[i]);
    uint16_t* values = kv.values + block * kv.kv_heads * kKvBlock * kv.value_dim + offset * kv.value_dim;
    for (int64_t h = 0; h < kv.kv_heads; ++h) {
        for (int64_t d = 0; d < kv.value_dim; ++d)
            values[h * kKvBlock * kv.value_dim + d] = float_to_half(v[h * kv.value_dim + d]);
    }
}

}  // namespace generic
}  // namespace edgewise
