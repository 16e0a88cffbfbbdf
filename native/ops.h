// ops: the operations a program is made of. Each is one or more stages of tasks that all threads of a team
// share.
//
// Every op treats rows on their own and splits outputs among tasks, never sums: results do not depend on the
// number of threads, on which rows share a step, or on how tasks are cut.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dispatch.h"
#include "kv_cache.h"
#include "memory.h"
#include "pool.h"

namespace edgewise {

// f32 [max_rows or max_outputs, width]
struct Buffer {
    float* data = nullptr;
    int64_t width = 0;
    bool of_outputs = false;  // one row per wanted output rather than per row of the step

    float* row(int64_t index) const { return data + index * width; }
};

// The ragged rows of one step. Checked by Program::run before any op sees them.
struct Step {
    int64_t rows = 0, sequences = 0, outputs = 0, table_width = 0;  // T, S, R, M
    const int32_t* token_ids = nullptr;                             // [T]
    const int32_t* positions = nullptr;                             // [T]
    const int32_t* row_starts = nullptr;                            // [S + 1]
    const int32_t* context_lens = nullptr;  // [S] tokens in the cache before this step
    const int32_t* block_tables = nullptr;  // [S, M]
    const int32_t* output_rows = nullptr;   // [R]
    int64_t num_embeddings = 0, embedding_width = 0;
    const int32_t* embedding_rows =
        nullptr;                        // [num_embeddings] rows that are given as embeddings, not as ids
    const float* embeddings = nullptr;  // [num_embeddings, embedding_width]
    // Derived by Program::run
    const int32_t* row_sequences = nullptr;   // [T]
    const int32_t* row_embeddings = nullptr;  // [T] index into embeddings, or -1; null without embeddings

    const int32_t* block_table(int64_t sequence) const { return block_tables + sequence * table_width; }
    int64_t index_of(int64_t row) const {  // of the row's token in its sequence
        int64_t s = row_sequences[row];
        return context_lens[s] + row - row_starts[s];
    }
    int64_t rows_of(const Buffer& buffer) const { return buffer.of_outputs ? outputs : rows; }
};

// What a thread needs to run ops. Both memories are 64-byte aligned and keep nothing from op to op.
struct OpContext {
    Team& team;
    int thread;
    const Kernels& kernels;
    const Step& step;
    uint8_t* scratch;  // this thread's own, at least scratch_bytes() of every op
    uint8_t* shared;   // of all threads, at least shared_bytes() of every op

    template <class Task>
    void for_chunks(int64_t total, int64_t chunk, Task&& task) const {  // task(begin, end)
        team.for_each((total + chunk - 1) / chunk,
                      [&](int64_t i) { task(i * chunk, std::min(total, (i + 1) * chunk)); });
    }
};

class Op {
  public:
    virtual ~Op() = default;
    virtual void run(const OpContext& context) const = 0;  // on every thread of the team
    virtual std::string label() const = 0;                 // for the profile: what and how large
    virtual int64_t scratch_bytes() const { return 0; }
    virtual int64_t shared_bytes() const { return 0; }
};

enum class NormKind : int32_t { Rms, Layer };

struct Norm {
    NormKind kind = NormKind::Rms;
    std::vector<float> weight;
    std::vector<float> bias;  // empty: none
    float eps = 0.0f;

    void apply(const Kernels& kernels, const float* x, float* y) const;
};

// cos and sin of every row's position: f32 [max_rows, pairs, 2]
struct RopeTable {
    Buffer cos_sin;
    std::vector<double> inv_freq;
    float scale = 1.0f;

    int64_t pairs() const { return static_cast<int64_t>(inv_freq.size()); }
};

// ops_rows.cpp
std::unique_ptr<Op> make_rope_table_op(const RopeTable& table);
std::unique_ptr<Op> make_embed_op(const PackedMatrix& matrix, Buffer dest, float scale);
std::unique_ptr<Op> make_norm_op(Buffer source, Buffer dest, Norm norm);
std::unique_ptr<Op> make_add_op(Buffer source, Buffer dest, float scale);
std::unique_ptr<Op> make_scale_op(Buffer buffer, float scale);
std::unique_ptr<Op> make_gather_op(Buffer source, Buffer dest);

// ops_product.cpp: y = W x and what follows it
struct Product {
    PackedMatrix matrix;
    std::vector<float> bias;  // empty: none
    // A second matrix makes it gated: y = activation(W x + bias) * (up x + up_bias).
    std::optional<PackedMatrix> up;
    std::vector<float> up_bias;
    std::optional<Activation> activation;
    float scale = 1.0f;       // of the finished product
    float soft_cap = 0.0f;    // 0: off
    bool accumulate = false;  // dest += scale * y
    Buffer dest;              // columns [column, column + matrix.rows)
    int64_t column = 0;
};
// All products read the same source (after `norm`); none may write to it.
std::unique_ptr<Op> make_product_op(std::string label, const Kernels& kernels, int threads, int64_t max_rows,
                                    Buffer source, std::optional<Norm> norm, std::vector<Product> products);

}  // namespace edgewise
