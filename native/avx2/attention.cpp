// attention for AVX2 with FMA and F16C.
//
// One row (decode) reads the f16 cache itself: memory is the limit, and the block after the present one is
// fetched meanwhile. More rows (prefill) read one block at a time, widened to f32 in L1. Either way the
// scores of a partition are made first, then its weights, then the sums of its values.
#include "attention.h"

#include <immintrin.h>

#include "attention_tiles.h"
#include "dispatch.h"
#include "numeric.h"

namespace edgewise::avx2 {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr int64_t kBlocks = kPartition / kKvBlock;
// Heads of one row; beyond it, widening a block once is cheaper than converting it in each tile.
constexpr int64_t kDirectHeads = 8;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

float max_lane(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Scores [begin, end) of a partition become weights in place; the lanes about them that share their vectors
// become 0.
void soften(float* s, int64_t begin, int64_t end, float soft_cap, float* max, float* sum) {
    const int64_t first = begin / kLane * kLane, last = (end + kLane - 1) / kLane * kLane;
    if (soft_cap > 0.0f) {
        const __m256 cap = _mm256_set1_ps(soft_cap);
        for (int64_t t = first; t < last; t += kLane) {
            __m256 capped = vector_tanh(_mm256_div_ps(_mm256_load_ps(s + t), cap));
            _mm256_store_ps(s + t, _mm256_mul_ps(cap, capped));
        }
    }
    for (int64_t t = first; t < begin; ++t) s[t] = kMinusInfinity;
    for (int64_t t = end; t < last; ++t) s[t] = kMinusInfinity;
    __m256 top = _mm256_set1_ps(kMinusInfinity);
    for (int64_t t = first; t < last; t += kLane)
        top = _mm256_max_ps(_mm256_load_ps(s + t), top);  // NaN: keeps top
    *max = max_lane(top);
    const __m256 m = _mm256_set1_ps(*max);
    __m256 total = _mm256_setzero_ps();
    int64_t t = first;
    for (; t + 4 * kLane <= last; t += 4 * kLane) {
        __m256 weight[4];
        for (int j = 0; j < 4; ++j) weight[j] = _mm256_sub_ps(_mm256_load_ps(s + t + j * kLane), m);
        vector_exp(weight);
        for (int j = 0; j < 4; ++j) {
            _mm256_store_ps(s + t + j * kLane, weight[j]);
            total = _mm256_add_ps(total, weight[j]);
        }
    }
    for (; t < last; t += kLane) {
        const __m256 weight = vector_exp(_mm256_sub_ps(_mm256_load_ps(s + t), m));
        _mm256_store_ps(s + t, weight);
        total = _mm256_add_ps(total, weight);
    }
    *sum = sum_lanes(total);
}

// The part of a query tile whose scores of the partition are held at once: rows x heads vectors, row-major.
struct Part {
    const AttentionArgs& args;
    int64_t rows, heads;
    int64_t begin[kMaxQueryRows];  // keys a row sees, counted from the start of the partition
    int64_t end[kMaxQueryRows];
    const float* q[kScoreVectors];
    float* scores[kScoreVectors];  // [kPartition], 32-byte aligned
    float* acc[kScoreVectors];

    int64_t vectors() const { return rows * heads; }
    int64_t first_block() const { return begin[0] / kKvBlock; }
    int64_t last_block() const { return (end[rows - 1] + kKvBlock - 1) / kKvBlock; }
};

void find_visible(const AttentionArgs& args, int64_t first_row, Part& part) {
    const int64_t origin = args.partition * kPartition;
    for (int64_t r = 0; r < part.rows; ++r) {
        const int64_t index = args.first_index + first_row + r;
        int64_t begin = 0;
        if (args.window > 0) begin = most(begin, index - args.window + 1 - origin);
        if (args.chunk > 0) begin = most(begin, index / args.chunk * args.chunk - origin);
        const int64_t end = most(0, least(kPartition, index + 1 - origin));
        part.begin[r] = least(begin, kPartition);
        part.end[r] = most(end, part.begin[r]);  // empty: begin = end
    }
}

// The rows that see any key of a block, and among them those that see all: both are runs, since begin and end
// only ascend.
struct BlockRows {
    int64_t any_begin, any_end, all_begin, all_end;
};

BlockRows rows_of_block(const Part& part, int64_t block) {
    const int64_t low = block * kKvBlock, high = low + kKvBlock;
    BlockRows rows{0, part.rows, 0, part.rows};
    while (rows.any_begin < part.rows && part.end[rows.any_begin] <= low) ++rows.any_begin;
    while (rows.any_end > rows.any_begin && part.begin[rows.any_end - 1] >= high) --rows.any_end;
    rows.all_begin = rows.any_begin;
    rows.all_end = rows.any_end;
    while (rows.all_begin < rows.all_end && part.end[rows.all_begin] < high) ++rows.all_begin;
    while (rows.all_end > rows.all_begin && part.begin[rows.all_end - 1] > low) --rows.all_end;
    return rows;
}

const uint16_t* keys_of(const AttentionArgs& args, int64_t block) {
    const KvLayer& kv = args.kv;
    const int64_t entry = args.block_table[args.partition * (kPartition / kKvBlock) + block];
    return kv.keys + (entry * kv.kv_heads + args.kv_head) * kv.key_dim * kKvBlock;
}

const uint16_t* values_of(const AttentionArgs& args, int64_t block) {
    const KvLayer& kv = args.kv;
    const int64_t entry = args.block_table[args.partition * (kPartition / kKvBlock) + block];
    return kv.values + (entry * kv.kv_heads + args.kv_head) * kKvBlock * kv.value_dim;
}

void soften_all(const Part& part, float* max, float* sum) {
    for (int64_t v = 0; v < part.vectors(); ++v) {
        const int64_t row = v / part.heads, n = row * part.args.group + v % part.heads;
        soften(part.scores[v], part.begin[row], part.end[row], part.args.soft_cap, max + n, sum + n);
        for (int64_t d = 0; d < part.args.kv.value_dim; d += kLane)
            _mm256_storeu_ps(part.acc[v] + d, _mm256_setzero_ps());
    }
}

// A part of one row, from the f16 cache.
void attend_row(const Part& part, float* max, float* sum) {
    const AttentionArgs& args = part.args;
    const KvLayer& kv = args.kv;
    const int64_t first = part.first_block(), last = part.last_block();
    const uint16_t *keys[kBlocks + 1], *values[kBlocks + 1];
    for (int64_t block = first; block < last; ++block) {
        keys[block] = keys_of(args, block);
        values[block] = values_of(args, block);
    }
    if (first < last) {  // what is fetched during the last block of each
        keys[last] = values[first];
        values[last] = values[last - 1];
    }
    for (int64_t block = first; block < last; ++block) {
        const Product<uint16_t> p{part.q,           0,          keys[block],
                                  kKvBlock,         kv.key_dim, part.scores,
                                  block * kKvBlock, args.scale, keys[block + 1]};
        multiply<Mode::Scores>(p, 0, part.heads, kKvBlock);
    }
    soften_all(part, max, sum);
    for (int64_t block = first; block < last; ++block) {
        const int64_t low = block * kKvBlock, begin = most(low, part.begin[0]),
                      end = least(low + kKvBlock, part.end[0]);
        const Product<uint16_t> p{part.scores,
                                  begin,
                                  values[block] + (begin - low) * kv.value_dim,
                                  kv.value_dim,
                                  end - begin,
                                  part.acc,
                                  0,
                                  1.0f,
                                  values[block + 1]};
        multiply<Mode::Values>(p, 0, part.heads, kv.value_dim);
    }
}

void widen(const uint16_t* from, int64_t n, float* to) {
    for (int64_t i = 0; i < n; i += kLane) _mm256_store_ps(to + i, load8(from + i));
}

// A part of many rows, from an f32 copy of one block at a time.
class RowsPart {
  public:
    RowsPart(const Part& part, float* copy) : part_(part), args_(part.args), copy_(copy) {}

    void attend(float* max, float* sum) const {
        for (int64_t block = part_.first_block(); block < part_.last_block(); ++block) scores(block);
        soften_all(part_, max, sum);
        for (int64_t block = part_.first_block(); block < part_.last_block(); ++block) values(block);
    }

    void scores(int64_t block) const {
        const BlockRows rows = rows_of_block(part_, block);
        if (rows.any_begin == rows.any_end) return;
        widen(keys_of(args_, block), args_.kv.key_dim * kKvBlock, copy_);
        const Product<float> p{
            part_.q,          0,           copy_,  kKvBlock, args_.kv.key_dim, part_.scores,
            block * kKvBlock, args_.scale, nullptr};
        multiply<Mode::Scores>(p, rows.any_begin * part_.heads, rows.any_end * part_.heads, kKvBlock);
    }

    void values(int64_t block) const {
        const BlockRows rows = rows_of_block(part_, block);
        if (rows.any_begin == rows.any_end) return;
        widen(values_of(args_, block), args_.kv.value_dim * kKvBlock, copy_);
        const int64_t dim = args_.kv.value_dim, low = block * kKvBlock, high = low + kKvBlock;
        auto weigh = [&](int64_t begin, int64_t end, int64_t first_row, int64_t last_row) {
            const Product<float> p{
                part_.scores, begin,  copy_ + (begin - low) * dim, dim, end - begin, part_.acc, 0,
                1.0f,         nullptr};
            multiply<Mode::Values>(p, first_row * part_.heads, last_row * part_.heads, dim);
        };
        if (rows.all_begin < rows.all_end) weigh(low, high, rows.all_begin, rows.all_end);
        for (int64_t r = rows.any_begin; r < rows.any_end; ++r) {
            const bool all = r >= rows.all_begin && r < rows.all_end;
            if (!all) weigh(most(part_.begin[r], low), least(part_.end[r], high), r, r + 1);
        }
    }

  private:
    const Part& part_;
    const AttentionArgs& args_;
    float* copy_;
};

void attend_part(const AttentionArgs& args, int64_t first_row, int64_t rows, int64_t first_head,
                 int64_t heads) {
    Part part{args, rows, heads, {}, {}, {}, {}, {}};
    find_visible(args, first_row, part);
    float* copy = args.scratch;
    float* scores = copy + kKvBlock * most(args.kv.key_dim, args.kv.value_dim);
    for (int64_t v = 0; v < part.vectors(); ++v) {
        const int64_t row = first_row + v / heads, head = first_head + v % heads;
        part.q[v] = args.q + row * args.q_stride + head * args.kv.key_dim;
        part.scores[v] = scores + v * kPartition;
        part.acc[v] = args.acc + (row * args.group + head) * args.kv.value_dim;
    }
    float* max = args.max + first_row * args.group + first_head;
    float* sum = args.sum + first_row * args.group + first_head;
    if (rows == 1 && heads <= kDirectHeads) {
        attend_row(part, max, sum);
    } else {
        RowsPart(part, copy).attend(max, sum);
    }
}

}  // namespace

void attention(const AttentionArgs& args) {
    const int64_t heads_at_once = least(args.group, kScoreVectors);
    const int64_t rows_at_once = kScoreVectors / heads_at_once;
    for (int64_t row = 0; row < args.rows; row += rows_at_once) {
        for (int64_t head = 0; head < args.group; head += heads_at_once) {
            attend_part(args, row, least(rows_at_once, args.rows - row), head,
                        least(heads_at_once, args.group - head));
        }
    }
}

void attention_fold(int64_t n, int64_t value_dim, const float* max, const float* sum, const float* acc,
                    float* run_max, float* run_sum, float* run_acc) {
    for (int64_t i = 0; i < n; ++i) {
        if (sum[i] == 0.0f) continue;
        const float top = run_max[i] < max[i] ? max[i] : run_max[i];
        const float keep = vector_exp(run_max[i] - top), join = vector_exp(max[i] - top);
        run_max[i] = top;
        run_sum[i] = __builtin_fmaf(sum[i], join, run_sum[i] * keep);
        const __m256 keep8 = _mm256_set1_ps(keep), join8 = _mm256_set1_ps(join);
        const float* from = acc + i * value_dim;
        float* to = run_acc + i * value_dim;
        for (int64_t d = 0; d < value_dim; d += kLane) {
            __m256 kept = _mm256_mul_ps(_mm256_loadu_ps(to + d), keep8);
            _mm256_storeu_ps(to + d, _mm256_fmadd_ps(_mm256_loadu_ps(from + d), join8, kept));
        }
    }
}

void attention_finish(int64_t rows, int64_t group, int64_t value_dim, const float* sinks,
                      const float* run_max, const float* run_sum, const float* run_acc, float* out,
                      int64_t out_stride) {
    for (int64_t i = 0; i < rows * group; ++i) {
        float keep = 1.0f, total = run_sum[i];
        if (sinks) {
            const float sink = sinks[i % group];
            const float top = run_max[i] < sink ? sink : run_max[i];
            keep = vector_exp(run_max[i] - top);
            total = __builtin_fmaf(total, keep, vector_exp(sink - top));
        }
        const __m256 keep8 = _mm256_set1_ps(keep), total8 = _mm256_set1_ps(total);
        const float* from = run_acc + i * value_dim;
        float* to = out + i / group * out_stride + i % group * value_dim;
        for (int64_t d = 0; d < value_dim; d += kLane) {
            _mm256_storeu_ps(to + d, _mm256_div_ps(_mm256_mul_ps(_mm256_loadu_ps(from + d), keep8), total8));
        }
    }
}

void kv_write(const KvLayer& kv, const int32_t* block_table, int64_t index, const float* k, const float* v) {
    const int64_t block = block_table[index / kKvBlock], offset = index % kKvBlock;
    uint16_t* keys = kv.keys + block * kv.kv_heads * kv.key_dim * kKvBlock + offset;
    for (int64_t i = 0; i < kv.kv_heads * kv.key_dim; i += kLane) {
        alignas(16) uint16_t halves[kLane];
        _mm_store_si128(reinterpret_cast<__m128i*>(halves),
                        _mm256_cvtps_ph(_mm256_loadu_ps(k + i), _MM_FROUND_TO_NEAREST_INT));
        for (int64_t j = 0; j < kLane; ++j) keys[(i + j) * kKvBlock] = halves[j];
    }
    uint16_t* values = kv.values + block * kv.kv_heads * kKvBlock * kv.value_dim + offset * kv.value_dim;
    for (int64_t h = 0; h < kv.kv_heads; ++h) {
        uint16_t* to = values + h * kKvBlock * kv.value_dim;
        for (int64_t d = 0; d < kv.value_dim; d += kLane) {
            _mm_storeu_si128(
                reinterpret_cast<__m128i*>(to + d),
                _mm256_cvtps_ph(_mm256_loadu_ps(v + h * kv.value_dim + d), _MM_FROUND_TO_NEAREST_INT));
        }
    }
}

}  // namespace edgewise::avx2
