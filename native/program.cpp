// Running a program.
#include "program.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace edgewise {

namespace {

void require(bool good, const char* what, int64_t index) {
    if (!good) throw std::invalid_argument(std::string(what) + " (at " + std::to_string(index) + ")");
}

// Holds a flag for as long as it lives.
class Holding {
  public:
    explicit Holding(std::atomic<bool>& flag) : flag_(flag) {
        if (flag.exchange(true)) throw std::runtime_error("the program is running on another thread");
    }
    ~Holding() { flag_.store(false); }
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

  private:
    std::atomic<bool>& flag_;
};

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void Program::check(const Step& step) const {
    if (step.rows < 1 || step.rows > max_rows_) {
        throw std::invalid_argument("a step has 1 to " + std::to_string(max_rows_) + " rows, got " +
                                    std::to_string(step.rows));
    }
    if (step.outputs > max_outputs_) {
        throw std::invalid_argument("a step has at most " + std::to_string(max_outputs_) + " outputs, got " +
                                    std::to_string(step.outputs));
    }
    require(step.row_starts[0] == 0, "row_starts must begin with 0", 0);
    require(step.row_starts[step.sequences] == step.rows, "row_starts must end with the number of rows",
            step.sequences);
    for (int64_t s = 0; s < step.sequences; s++) {
        int64_t rows = step.row_starts[s + 1] - step.row_starts[s];
        require(rows >= 0, "row_starts must not descend", s);
        require(step.context_lens[s] >= 0, "context_lens must not be negative", s);
        if (rows == 0) continue;
        int64_t blocks = (step.context_lens[s] + rows + kKvBlock - 1) / kKvBlock;
        require(blocks <= step.table_width, "block_tables is too narrow for the sequence's tokens", s);
        for (int64_t b = 0; b < blocks; b++) {
            int32_t block = step.block_table(s)[b];
            require(block >= 0 && block < cache_.num_blocks(),
                    "block_tables names a block that does not exist", s);
        }
    }
    for (int64_t r = 0; r < step.outputs; r++) {
        require(step.output_rows[r] >= 0 && step.output_rows[r] < step.rows,
                "output_rows names a row that does not exist", r);
    }
}

// Fills in whose row each row is and which rows are embeddings; checks embeddings and token ids.
void Program::derive(Step& step) {
    auto rows = static_cast<size_t>(step.rows);
    row_sequences_.resize(rows);
    for (int64_t s = 0; s < step.sequences; s++) {
        std::fill(row_sequences_.begin() + step.row_starts[s],
                  row_sequences_.begin() + step.row_starts[s + 1], static_cast<int32_t>(s));
    }
    step.row_sequences = row_sequences_.data();
    if (step.num_embeddings > 0) {
        if (step.embedding_width != embed_width_) {
            throw std::invalid_argument("embeddings have width " + std::to_string(step.embedding_width) +
                                        ", the model takes " + std::to_string(embed_width_));
        }
        row_embeddings_.assign(rows, -1);
        for (int64_t i = 0; i < step.num_embeddings; i++) {
            int32_t row = step.embedding_rows[i];
            require(row >= 0 && row < step.rows, "an embedding names a row that does not exist", i);
            row_embeddings_[static_cast<size_t>(row)] = static_cast<int32_t>(i);
        }
        step.row_embeddings = row_embeddings_.data();
    }
    if (embed_width_ == 0) return;
    for (int64_t t = 0; t < step.rows; t++) {
        if (step.row_embeddings && step.row_embeddings[t] >= 0) continue;
        require(step.token_ids[t] >= 0 && step.token_ids[t] < embed_rows_, "token id out of range", t);
    }
}

// Makes both working memories large enough for every op and for this step's attention.
void Program::reserve() {
    int64_t shared = shared_bytes_;
    for (const auto& plan : plans_) shared = std::max(shared, plan->shared_bytes());
    if (shared > shared_.bytes()) shared_ = Mapping(aligned(shared));
    int64_t scratch = aligned(scratch_bytes_) * pool_.threads();
    if (scratch > scratch_.bytes()) scratch_ = Mapping(scratch);
}

bool Program::run(Step step) {
    Holding holding(running_);
    check(step);
    derive(step);
    for (const auto& plan : plans_) plan->make(step);
    reserve();
    if (profiling_) op_seconds_.resize(ops_.size());
    finished_ = false;
    pool_.run([&](Team& team, int thread) { walk(team, thread, step); }, &cancelled_);
    cancelled_.store(false, std::memory_order_relaxed);  // each cancel costs one run, this or the next
    if (profiling_ && finished_) profiled_runs_++;
    return finished_;
}

void Program::walk(Team& team, int thread, const Step& step) {
    OpContext context{
        team, thread, kernels_, step, scratch_.data() + aligned(scratch_bytes_) * thread, shared_.data()};
    bool timed = profiling_ && thread == 0;
    double before = timed ? seconds_now() : 0.0;
    for (size_t i = 0; i < ops_.size(); i++) {
        if (team.stopped()) return;
        ops_[i]->run(context);
        if (!timed) continue;
        double now = seconds_now();
        op_seconds_[i] += now - before;
        before = now;
    }
    if (thread == 0) finished_ = !team.stopped();
}

float* Program::logits() const {
    if (!logits_.data) throw std::invalid_argument("the program has no head");
    return logits_.data;
}

void Program::profile(bool enable) {
    profiling_ = enable;
    if (!enable) return;
    op_seconds_.assign(ops_.size(), 0.0);
    profiled_runs_ = 0;
}

std::vector<ProfileEntry> Program::profile_report() const {
    std::vector<ProfileEntry> entries;
    for (size_t i = 0; i < op_seconds_.size(); i++) {
        std::string label = ops_[i]->label();
        auto same =
            std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.label == label; });
        if (same == entries.end()) same = entries.insert(entries.end(), ProfileEntry{label, 0.0, 0});
        same->seconds += op_seconds_[i];
        same->calls += profiled_runs_;
    }
    return entries;
}

}  // namespace edgewise
