// program: a model as a list of ops, built once, run once a step.
//
// Building checks every shape and throws std::invalid_argument, so that running has only the step's own
// numbers to check. One thread at a time builds and runs; cancel() is for any thread. Matrices' bytes, the
// pool and the cache are not owned and have to outlive the program; vectors are copied.
#pragma once

#include <atomic>
#include <deque>

#include "ops.h"
#include "ops_attention.h"

namespace edgewise {

// One matrix of a linear op and where its rows go: columns [column, column + matrix.rows) of `dest`.
struct LinearTarget {
    PackedMatrix matrix;
    std::vector<float> bias;  // empty: none
    int64_t dest = 0;
    int64_t column = 0;
};

struct AttentionOptions {
    int64_t layer = 0;  // of the cache
    int64_t q = 0, k = 0, v = 0, dest = 0;
    AttentionShape shape;
    float scale = 1.0f;
    std::optional<int64_t> rope_table;
    bool interleaved = false;
    std::vector<float> q_norm, k_norm;
    float norm_eps = 0.0f;
    float soft_cap = 0.0f;
    std::vector<float> sinks;
};

struct ProfileEntry {
    std::string label;
    double seconds = 0.0;
    int64_t calls = 0;
};

class Program {
  public:
    Program(Pool& pool, const Kernels& kernels, int64_t max_rows, int64_t max_outputs, KvCache& cache);

    const Kernels& kernels() const { return kernels_; }

    // Buffers and tables are named by the numbers these return.
    int64_t buffer(int64_t width);
    int64_t output_buffer(int64_t width);
    int64_t rope_table(std::vector<double> inv_freq, float scale);

    void embed(const PackedMatrix& matrix, int64_t dest, float scale);
    void norm(int64_t source, int64_t dest, Norm norm);
    void linear(int64_t source, std::vector<LinearTarget> targets, std::optional<Norm> norm, bool accumulate,
                float scale);
    void gated_mlp(int64_t source, const PackedMatrix& gate, const PackedMatrix& up, Activation activation,
                   int64_t dest, std::optional<Norm> norm, std::vector<float> gate_bias,
                   std::vector<float> up_bias);
    void mlp_up(int64_t source, const PackedMatrix& matrix, Activation activation, int64_t dest,
                std::optional<Norm> norm, std::vector<float> bias);
    void attention(AttentionOptions options);
    void add(int64_t source, int64_t dest, float scale);
    void scale(int64_t buffer, float scale);
    void gather_outputs(int64_t source, int64_t dest);
    void head(int64_t source, const PackedMatrix& matrix, std::optional<Norm> norm, std::vector<float> bias,
              float scale, float soft_cap);

    // Runs the ops over a step whose derived fields are still empty. False when cancelled; the buffers are
    // then void. Throws std::invalid_argument, before anything is written, when a row, id or block is out of
    // range.
    bool run(Step step);
    // Ends the run in progress between two ops, or the next one when none is in progress.
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

    // What a run left in a buffer, f32 [max_rows or max_outputs, width].
    const Buffer& contents(int64_t buffer) const { return at(buffer, "buffer"); }
    int64_t rows_of(int64_t buffer) const { return contents(buffer).of_outputs ? max_outputs_ : max_rows_; }

    // f32 [max_outputs, vocab_size()]; throws std::invalid_argument before head().
    float* logits() const;
    int64_t vocab_size() const { return logits_.width; }
    int64_t max_outputs() const { return max_outputs_; }

    void profile(bool enable);
    std::vector<ProfileEntry> profile_report() const;  // since profile(true), ops of the same label together

  private:
    Buffer new_buffer(int64_t width, bool of_outputs);
    const Buffer& at(int64_t buffer, const char* name) const;
    void check_matrix(const PackedMatrix& matrix, const Buffer& source, const char* name) const;
    void add_product(const std::string& name, const Buffer& source, std::optional<Norm> norm,
                     std::vector<Product> products);
    std::shared_ptr<AttentionPlan> plan_for(const AttentionShape& shape);
    void append(std::unique_ptr<Op> op);
    void check(const Step& step) const;
    void derive(Step& step);
    void reserve();
    void walk(Team& team, int thread, const Step& step);

    Pool& pool_;
    const Kernels& kernels_;
    KvCache& cache_;
    int64_t max_rows_, max_outputs_;
    std::deque<Mapping> memory_;  // of the buffers
    std::vector<Buffer> buffers_;
    std::vector<RopeTable> tables_;
    std::vector<std::shared_ptr<AttentionPlan>> plans_;
    std::vector<std::unique_ptr<Op>> ops_;
    Buffer logits_;
    int64_t embed_rows_ = 0, embed_width_ = 0;  // of the embedding matrix; 0: no embed op
    int64_t scratch_bytes_ = 0, shared_bytes_ = 0;
    Mapping scratch_, shared_;
    std::vector<int32_t> row_sequences_, row_embeddings_;
    std::atomic<bool> running_ = false;
    std::atomic<bool> cancelled_ = false;
    bool finished_ = false;
    bool profiling_ = false;
    std::vector<double> op_seconds_;
    int64_t profiled_runs_ = 0;
};

}  // namespace edgewise
