// The attention op and the plan of its tasks.
#pragma once

#include "ops.h"

namespace edgewise {

enum class AttentionKind : int32_t { Full, Sliding, Chunked };

// What decides how a step's attention is cut into tasks; layers that agree in it share a plan.
struct AttentionShape {
    int64_t num_heads = 0, num_kv_heads = 0, key_dim = 0, value_dim = 0;
    AttentionKind kind = AttentionKind::Full;
    int64_t window = 0;  // tokens of the window or of a chunk

    int64_t group() const { return num_heads / num_kv_heads; }
    bool operator==(const AttentionShape&) const = default;
};

// Query tiles of every sequence and kv head, and the tasks made of them. A tile's partitions are walked by
// one task, or, where one tile is too large a share of the step, computed by one task each into partial
// results that are folded afterwards.
class AttentionPlan {
  public:
    AttentionPlan(AttentionShape shape, int threads) : shape_(shape), threads_(threads) {}

    struct Tile {
        int64_t sequence, kv_head;
        int64_t first_row, rows;                 // rows of the step
        int64_t first_index;                     // the first row's index in its sequence
        int64_t first_partition, end_partition;  // those that any of its rows sees
        int64_t partials = -1;                   // offset of its partial results, in floats; -1: walked
        int64_t cost() const { return rows * (end_partition - first_partition); }
    };
    struct Task {
        int64_t tile;
        int64_t partition;  // -1: all of them
        int64_t cost;
    };

    // Called by one thread before the step's region.
    void make(const Step& step);

    const AttentionShape& shape() const { return shape_; }
    const std::vector<Tile>& tiles() const { return tiles_; }
    const std::vector<Task>& tasks() const { return tasks_; }  // dearest first
    const std::vector<int64_t>& folded() const {
        return folded_;
    }  // tiles whose partial results are to be folded
    int64_t tile_rows() const;
    int64_t partial_floats(int64_t rows) const {  // one partition of a tile: max, sum and acc
        return rows * shape_.group() * (shape_.value_dim + 2);
    }
    int64_t shared_bytes() const { return partials_ * static_cast<int64_t>(sizeof(float)); }

  private:
    void add_tiles(const Step& step, int64_t sequence);
    void add_tasks();

    AttentionShape shape_;
    int threads_;
    int64_t partials_ = 0;
    std::vector<Tile> tiles_;
    std::vector<Task> tasks_;
    std::vector<int64_t> folded_;
};

struct AttentionConfig {
    KvLayer kv;
    Buffer q, k, v, dest;
    float scale = 1.0f;
    float soft_cap = 0.0f;
    std::optional<RopeTable> rope;
    bool interleaved = false;
    std::vector<float> q_norm, k_norm;  // [key_dim], or empty
    float norm_eps = 0.0f;
    std::vector<float> sinks;  // [num_heads], or empty
};

// q and k are normed and rotated in place.
std::unique_ptr<Op> make_attention_op(AttentionConfig config, std::shared_ptr<const AttentionPlan> plan);

}  // namespace edgewise
