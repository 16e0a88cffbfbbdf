#include "ops_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace edgewise {

namespace {

// A tile's queries share each block of keys that the kernel widens to f32; beyond about this many the
// widening no longer shows, while their accumulators leave L1.
constexpr int64_t kTileQueries = 96;
// Tiles that make up more than this share of a thread's work are cut by partitions.
constexpr int64_t kTilesPerThread = 4;

}  // namespace

int64_t AttentionPlan::tile_rows() const {
    return std::clamp<int64_t>(kTileQueries / shape_.group(), 1, kMaxQueryRows);
}

void AttentionPlan::make(const Step& step) {
    tiles_.clear();
    tasks_.clear();
    folded_.clear();
    partials_ = 0;
    for (int64_t s = 0; s < step.sequences; s++) add_tiles(step, s);
    add_tasks();
}

void AttentionPlan::add_tiles(const Step& step, int64_t sequence) {
    int64_t begin = step.row_starts[sequence], end = step.row_starts[sequence + 1];
    for (int64_t row = begin; row < end; row += tile_rows()) {
        Tile tile;
        tile.sequence = sequence;
        tile.first_row = row;
        tile.rows = std::min(tile_rows(), end - row);
        tile.first_index = step.context_lens[sequence] + row - begin;
        int64_t first_key = 0;
        if (shape_.kind == AttentionKind::Sliding) {
            first_key = std::max<int64_t>(0, tile.first_index - shape_.window + 1);
        }
        if (shape_.kind == AttentionKind::Chunked)
            first_key = tile.first_index / shape_.window * shape_.window;
        tile.first_partition = first_key / kPartition;
        tile.end_partition = (tile.first_index + tile.rows - 1) / kPartition + 1;
        for (tile.kv_head = 0; tile.kv_head < shape_.num_kv_heads; tile.kv_head++) tiles_.push_back(tile);
    }
}

void AttentionPlan::add_tasks() {
    int64_t total = 0;
    for (const Tile& tile : tiles_) total += tile.cost();
    for (size_t i = 0; i < tiles_.size(); i++) {
        Tile& tile = tiles_[i];
        auto index = static_cast<int64_t>(i);
        int64_t partitions = tile.end_partition - tile.first_partition;
        if (partitions == 1 || tile.cost() * kTilesPerThread * threads_ <= total) {
            tasks_.push_back({index, -1, tile.cost()});
            continue;
        }
        tile.partials = partials_;
        partials_ += partitions * partial_floats(tile.rows);
        folded_.push_back(index);
        for (int64_t p = tile.first_partition; p < tile.end_partition; p++)
            tasks_.push_back({index, p, tile.rows});
    }
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& a, const Task& b) { return a.cost > b.cost; });
}

namespace {

// Softmax state of `heads` query heads: a partition's partial result, or the running fold.
struct State {
    float *max, *sum, *acc;

    State(float* memory, int64_t heads) : max(memory), sum(memory + heads), acc(memory + 2 * heads) {}

    void clear(int64_t heads, int64_t value_dim) {
        std::fill_n(max, heads, -std::numeric_limits<float>::infinity());
        std::fill_n(sum, heads * (1 + value_dim), 0.0f);
    }
};

class AttentionOp : public Op {
  public:
    AttentionOp(AttentionConfig config, std::shared_ptr<const AttentionPlan> plan)
        : config_(std::move(config)), plan_(std::move(plan)), shape_(plan_->shape()) {}

    void run(const OpContext& c) const override {
        c.for_chunks(c.step.rows, rows_per_task(c.step.rows), [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; t++) enter(c, t);
        });
        const auto& tasks = plan_->tasks();
        c.team.for_each(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
            const AttentionPlan::Task& task = tasks[static_cast<size_t>(i)];
            const AttentionPlan::Tile& tile = plan_->tiles()[static_cast<size_t>(task.tile)];
            if (task.partition < 0) {
                walk(c, tile);
            } else {
                partition(c, tile, task.partition, partial(c, tile, task.partition));
            }
        });
        c.team.for_each(static_cast<int64_t>(plan_->folded().size()), [&](int64_t i) {
            fold_all(c, plan_->tiles()[static_cast<size_t>(plan_->folded()[static_cast<size_t>(i)])]);
        });
    }

    std::string label() const override {
        static constexpr const char* kKinds[] = {"full", "sliding", "chunked"};
        return std::string("attention ") + kKinds[static_cast<int>(shape_.kind)] + " [" +
               std::to_string(shape_.num_heads) + "/" + std::to_string(shape_.num_kv_heads) + " x " +
               std::to_string(shape_.key_dim) + "]";
    }

    int64_t scratch_bytes() const override { return kernel_scratch_bytes() + 2 * state_bytes(); }

  private:
    // A block of keys is transposed: tokens side by side share cache lines, so a task takes whole blocks
    // where it can.
    static int64_t rows_per_task(int64_t rows) { return rows >= 4 * kKvBlock ? kKvBlock : 4; }

    int64_t kernel_scratch_bytes() const {
        return aligned(attention_scratch_floats(shape_.group(), shape_.key_dim, shape_.value_dim) *
                       static_cast<int64_t>(sizeof(float)));
    }
    int64_t state_bytes() const {
        return aligned(plan_->partial_floats(plan_->tile_rows()) * static_cast<int64_t>(sizeof(float)));
    }
    int64_t heads(const AttentionPlan::Tile& tile) const { return tile.rows * shape_.group(); }

    State running(const OpContext& c, const AttentionPlan::Tile& tile) const {
        return {reinterpret_cast<float*>(c.scratch + kernel_scratch_bytes()), heads(tile)};
    }
    State own_partial(const OpContext& c, const AttentionPlan::Tile& tile) const {
        return {reinterpret_cast<float*>(c.scratch + kernel_scratch_bytes() + state_bytes()), heads(tile)};
    }
    State partial(const OpContext& c, const AttentionPlan::Tile& tile, int64_t partition) const {
        int64_t offset =
            tile.partials + (partition - tile.first_partition) * plan_->partial_floats(tile.rows);
        return {reinterpret_cast<float*>(c.shared) + offset, heads(tile)};
    }

    // Norms and rotates row t's queries and keys, and writes its keys and values to the cache.
    void enter(const OpContext& c, int64_t t) const {
        float *q = config_.q.row(t), *k = config_.k.row(t);
        norm_heads(c.kernels, config_.q_norm, q, shape_.num_heads);
        norm_heads(c.kernels, config_.k_norm, k, shape_.num_kv_heads);
        if (config_.rope) {
            const RopeTable& table = *config_.rope;
            const float* cos_sin = table.cos_sin.row(t);
            c.kernels.rope(q, shape_.num_heads, shape_.key_dim, table.pairs(), config_.interleaved, cos_sin);
            c.kernels.rope(k, shape_.num_kv_heads, shape_.key_dim, table.pairs(), config_.interleaved,
                           cos_sin);
        }
        const int32_t* block_table = c.step.block_table(c.step.row_sequences[t]);
        c.kernels.kv_write(config_.kv, block_table, c.step.index_of(t), k, config_.v.row(t));
    }

    void norm_heads(const Kernels& kernels, const std::vector<float>& weight, float* x, int64_t heads) const {
        if (weight.empty()) return;
        for (int64_t h = 0; h < heads; h++, x += shape_.key_dim) {
            kernels.rms_norm(x, weight.data(), config_.norm_eps, shape_.key_dim, x);
        }
    }

    void partition(const OpContext& c, const AttentionPlan::Tile& tile, int64_t index, State out) const {
        AttentionArgs args;
        args.kv = config_.kv;
        args.block_table = c.step.block_table(tile.sequence);
        args.kv_head = tile.kv_head;
        args.q = config_.q.row(tile.first_row) + tile.kv_head * shape_.group() * shape_.key_dim;
        args.q_stride = config_.q.width;
        args.rows = tile.rows;
        args.group = shape_.group();
        args.first_index = tile.first_index;
        args.partition = index;
        args.scale = config_.scale;
        args.soft_cap = config_.soft_cap;
        args.window = shape_.kind == AttentionKind::Sliding ? shape_.window : 0;
        args.chunk = shape_.kind == AttentionKind::Chunked ? shape_.window : 0;
        args.max = out.max;
        args.sum = out.sum;
        args.acc = out.acc;
        args.scratch = reinterpret_cast<float*>(c.scratch);
        c.kernels.attention(args);
    }

    void fold(const OpContext& c, const AttentionPlan::Tile& tile, const State& from, State& into) const {
        c.kernels.attention_fold(heads(tile), shape_.value_dim, from.max, from.sum, from.acc, into.max,
                                 into.sum, into.acc);
    }

    void finish(const OpContext& c, const AttentionPlan::Tile& tile, const State& state) const {
        int64_t first_head = tile.kv_head * shape_.group();
        const float* sinks = config_.sinks.empty() ? nullptr : config_.sinks.data() + first_head;
        float* out = config_.dest.row(tile.first_row) + first_head * shape_.value_dim;
        c.kernels.attention_finish(tile.rows, shape_.group(), shape_.value_dim, sinks, state.max, state.sum,
                                   state.acc, out, config_.dest.width);
    }

    void walk(const OpContext& c, const AttentionPlan::Tile& tile) const {
        State state = running(c, tile), one = own_partial(c, tile);
        state.clear(heads(tile), shape_.value_dim);
        for (int64_t p = tile.first_partition; p < tile.end_partition; p++) {
            partition(c, tile, p, one);
            fold(c, tile, one, state);
        }
        finish(c, tile, state);
    }

    void fold_all(const OpContext& c, const AttentionPlan::Tile& tile) const {
        State state = running(c, tile);
        state.clear(heads(tile), shape_.value_dim);
        for (int64_t p = tile.first_partition; p < tile.end_partition; p++) {
            fold(c, tile, partial(c, tile, p), state);
        }
        finish(c, tile, state);
    }

    AttentionConfig config_;
    std::shared_ptr<const AttentionPlan> plan_;
    AttentionShape shape_;
};

}  // namespace

std::unique_ptr<Op> make_attention_op(AttentionConfig config, std::shared_ptr<const AttentionPlan> plan) {
    return std::make_unique<AttentionOp>(std::move(config), std::move(plan));
}

}  // namespace edgewise
