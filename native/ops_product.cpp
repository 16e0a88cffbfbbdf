// Matrix products with what comes before them (norm, quantisation) and after (bias, activation, residual
// sum), as one op.
//
// Tasks are (token block, matrix, range of row blocks), token block outermost, so that 64 tokens of
// activations stay in a core's L2 while the weights pass by.
#include <algorithm>
#include <utility>

#include "ops.h"

namespace edgewise {

namespace {

// Up to this many numbers, and always for a single row, every thread prepares the whole input for itself:
// some 2 us, as long as a barrier and the wait for the slower half of a shared one.
constexpr int64_t kRedundantNumbers = 2048;
constexpr int64_t kInputChunkRows = 8;

// Rates that only decide how large a task is: what one core does, in weight bytes and multiply-adds per
// microsecond.
constexpr double kBytesPerUs = 10e3, kQuantizedMacsPerUs = 60e3, kFloatMacsPerUs = 20e3;
constexpr double kTaskUs = 20.0, kShortestTaskUs = 1.0;
constexpr double kTasksPerThread =
    4.0;  // at least, so that a late thread costs at most a quarter of its share
// From this many tokens on kernels unpack so many row blocks at a time and use them for all tokens.
constexpr int64_t kManyTokens = 5, kPanelBlocks = 8;
constexpr int64_t kResultNumbers = 8192;  // of one task's results before they go to dest: 32 KiB

const Kernels& kernels_of(const Kernels& preferred, const PackedMatrix& m) {
    return m.layout == preferred.layout ? preferred : generic_kernels();
}

// The source's rows as the products want them: f32 after the norm, or quantised, or both.
struct Prepared {
    QuantizedRows quantized;
    const float* numbers = nullptr;
    int64_t stride = 0;
};

class Input {
  public:
    Input(Buffer source, std::optional<Norm> norm, bool quantized, int64_t max_rows)
        : source_(source), norm_(std::move(norm)), quantized_(quantized), max_rows_(max_rows) {}

    Prepared prepare(const OpContext& c) const {
        int64_t rows = c.step.rows_of(source_);
        if (rows <= redundant_rows()) {
            Prepared own = layout(c.scratch, rows);
            fill(c.kernels, own, 0, rows);
            return own;
        }
        Prepared common = layout(c.shared, rows);
        if (norm_ || quantized_) {
            c.for_chunks(rows, kInputChunkRows,
                         [&](int64_t begin, int64_t end) { fill(c.kernels, common, begin, end); });
        }
        return common;
    }

    int64_t scratch_bytes() const { return bytes(redundant_rows()); }
    int64_t shared_bytes() const { return bytes(max_rows_); }
    const Buffer& source() const { return source_; }

  private:
    int64_t redundant_rows() const { return std::max<int64_t>(1, kRedundantNumbers / source_.width); }

    int64_t number_bytes(int64_t rows) const {
        return norm_ ? aligned(rows * source_.width * static_cast<int64_t>(sizeof(float))) : 0;
    }

    int64_t bytes(int64_t rows) const {
        if (!quantized_) return number_bytes(rows);
        QuantizedRowsSize size = quantized_rows_size(rows, source_.width);
        return number_bytes(rows) + size.codes + size.scales + size.sums;
    }

    Prepared layout(uint8_t* memory, int64_t rows) const {
        Prepared p;
        p.numbers = norm_ ? reinterpret_cast<float*>(memory) : source_.data;
        p.stride = source_.width;
        if (!quantized_) return p;
        QuantizedRowsSize size = quantized_rows_size(rows, source_.width);
        uint8_t* codes = memory + number_bytes(rows);
        p.quantized = {rows,
                       source_.width,
                       padded_groups(source_.width),
                       reinterpret_cast<int8_t*>(codes),
                       reinterpret_cast<float*>(codes + size.codes),
                       reinterpret_cast<int16_t*>(codes + size.codes + size.scales)};
        return p;
    }

    void fill(const Kernels& kernels, const Prepared& p, int64_t begin, int64_t end) const {
        if (norm_) {
            float* normed = const_cast<float*>(p.numbers);  // layout() made it of our own memory
            for (int64_t t = begin; t < end; t++)
                norm_->apply(kernels, source_.row(t), normed + t * p.stride);
        }
        if (quantized_) kernels.quantize(p.numbers, p.stride, begin, end, p.quantized);
    }

    Buffer source_;
    std::optional<Norm> norm_;
    bool quantized_;
    int64_t max_rows_;
};

// One matrix's share of the op.
class Part {
  public:
    Part(Product product, const Kernels& kernels)
        : product_(std::move(product)), kernels_(kernels_of(kernels, product_.matrix)) {}

    const Product& product() const { return product_; }

    double us_per_block(int64_t tokens) const {
        double us = us_of(product_.matrix, tokens);
        return product_.up ? us + us_of(*product_.up, tokens) : us;
    }

    // Tokens [t0, t1) of row blocks [b0, b1). `results`: kResultNumbers floats, twice that when gated.
    void run(const OpContext& c, const Prepared& x, int64_t t0, int64_t t1, int64_t b0, int64_t b1,
             float* results) const {
        const PackedMatrix& m = product_.matrix;
        int64_t first = b0 * m.interleave(), n = std::min(m.rows, b1 * m.interleave()) - first;
        float* dest = product_.dest.row(t0) + product_.column + first;
        bool direct = !product_.accumulate && !product_.up;
        float* y = direct ? dest : results;
        int64_t stride = direct ? product_.dest.width : n;
        multiply(m, x, t0, t1, b0, b1, y, stride);
        if (product_.up) multiply(*product_.up, x, t0, t1, b0, b1, results + kResultNumbers, n);
        if (direct && plain()) return;
        for (int64_t t = 0; t < t1 - t0; t++) {
            finish(c.kernels, first, n, y + t * stride, results + kResultNumbers + t * n,
                   dest + t * product_.dest.width);
        }
    }

  private:
    static double us_of(const PackedMatrix& m, int64_t tokens) {
        double macs = static_cast<double>(m.interleave() * m.cols * tokens);
        double bytes = static_cast<double>(m.bytes) / static_cast<double>(m.row_blocks());
        return std::max(bytes / kBytesPerUs,
                        macs / (is_float(m.format) ? kFloatMacsPerUs : kQuantizedMacsPerUs));
    }

    void multiply(const PackedMatrix& m, const Prepared& x, int64_t t0, int64_t t1, int64_t b0, int64_t b1,
                  float* y, int64_t stride) const {
        if (is_float(m.format)) {
            kernels_.linear_float(m, x.numbers + t0 * x.stride, x.stride, t1 - t0, b0, b1, y, stride);
        } else {
            kernels_.linear_quantized(m, x.quantized, t0, t1, b0, b1, y, stride);
        }
    }

    bool plain() const {
        return product_.bias.empty() && !product_.activation && product_.scale == 1.0f &&
               product_.soft_cap == 0.0f;
    }

    // y: [n] the product of one token, rows `first`...; in place when it is dest.
    void finish(const Kernels& k, int64_t first, int64_t n, float* y, float* up, float* dest) const {
        const Product& p = product_;
        if (!p.bias.empty()) k.add(p.bias.data() + first, 1.0f, n, y);
        if (p.up) {
            if (!p.up_bias.empty()) k.add(p.up_bias.data() + first, 1.0f, n, up);
            return k.gated_activation(*p.activation, y, up, n, dest);
        }
        if (p.activation) k.activation(*p.activation, y, n, y);
        if (p.accumulate) return k.add(y, p.scale, n, dest);
        if (p.scale != 1.0f) {
            for (int64_t i = 0; i < n; i++) y[i] *= p.scale;
        }
        if (p.soft_cap != 0.0f) k.soft_cap(y, p.soft_cap, n, y);
    }

    Product product_;
    const Kernels& kernels_;
};

class ProductOp : public Op {
  public:
    ProductOp(std::string label, int threads, Input input, std::vector<Part> parts)
        : label_(std::move(label)), threads_(threads), input_(std::move(input)), parts_(std::move(parts)) {}

    void run(const OpContext& c) const override {
        int64_t tokens = c.step.rows_of(input_.source());
        if (tokens == 0) return;
        Prepared x = input_.prepare(c);
        auto* results = reinterpret_cast<float*>(c.scratch + input_.scratch_bytes());
        double task_us = pick_task_us(tokens);
        int64_t tasks_per_block = 0;
        for (const Part& part : parts_) tasks_per_block += tasks_of(part, tokens, task_us);
        int64_t token_blocks = (tokens + kTokenBlock - 1) / kTokenBlock;
        c.team.for_each_in_slices(token_blocks * tasks_per_block, c.thread, [&](int64_t task) {
            int64_t t0 = task / tasks_per_block * kTokenBlock, index = task % tasks_per_block;
            const Part* part = parts_.data();
            for (int64_t n = tasks_of(*part, tokens, task_us); index >= n;
                 n = tasks_of(*part, tokens, task_us)) {
                index -= n;
                part++;
            }
            int64_t chunk = chunk_of(*part, tokens, task_us), blocks = part->product().matrix.row_blocks();
            part->run(c, x, t0, std::min(tokens, t0 + kTokenBlock), index * chunk,
                      std::min(blocks, (index + 1) * chunk), results);
        });
    }

    std::string label() const override { return label_; }
    int64_t scratch_bytes() const override {
        return input_.scratch_bytes() + 2 * kResultNumbers * static_cast<int64_t>(sizeof(float));
    }
    int64_t shared_bytes() const override { return input_.shared_bytes(); }

  private:
    double pick_task_us(int64_t tokens) const {
        double total = 0.0;
        for (const Part& part : parts_) {
            total += part.us_per_block(std::min(tokens, kTokenBlock)) *
                     static_cast<double>(part.product().matrix.row_blocks());
        }
        total *= static_cast<double>((tokens + kTokenBlock - 1) / kTokenBlock);
        return std::clamp(total / (kTasksPerThread * threads_), kShortestTaskUs, kTaskUs);
    }

    // Row blocks of one task.
    static int64_t chunk_of(const Part& part, int64_t tokens, double task_us) {
        tokens = std::min(tokens, kTokenBlock);
        const PackedMatrix& m = part.product().matrix;
        int64_t most = kResultNumbers / (tokens * m.interleave());
        auto chunk = std::clamp<int64_t>(static_cast<int64_t>(task_us / part.us_per_block(tokens)), 1, most);
        if (tokens >= kManyTokens)
            chunk = std::min(most, (chunk + kPanelBlocks - 1) / kPanelBlocks * kPanelBlocks);
        return std::min(chunk, m.row_blocks());
    }

    static int64_t tasks_of(const Part& part, int64_t tokens, double task_us) {
        int64_t chunk = chunk_of(part, tokens, task_us);
        return (part.product().matrix.row_blocks() + chunk - 1) / chunk;
    }

    std::string label_;
    int threads_;
    Input input_;
    std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<Op> make_product_op(std::string label, const Kernels& kernels, int threads, int64_t max_rows,
                                    Buffer source, std::optional<Norm> norm, std::vector<Product> products) {
    bool quantized = false;
    std::vector<Part> parts;
    for (Product& product : products) {
        quantized |= !is_float(product.matrix.format) || (product.up && !is_float(product.up->format));
        parts.emplace_back(std::move(product), kernels);
    }
    return std::make_unique<ProductOp>(std::move(label), threads,
                                       Input(source, std::move(norm), quantized, max_rows), std::move(parts));
}

}  // namespace edgewise
