// Ops that work on rows one by one.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ops.h"

namespace edgewise {

void Norm::apply(const Kernels& kernels, const float* x, float* y) const {
    auto width = static_cast<int64_t>(weight.size());
    if (kind == NormKind::Rms) {
        kernels.rms_norm(x, weight.data(), eps, width, y);
    } else {
        kernels.layer_norm(x, weight.data(), bias.empty() ? nullptr : bias.data(), eps, width, y);
    }
}

namespace {

std::string dims(int64_t width) { return " [" + std::to_string(width) + "]"; }

class RopeTableOp : public Op {
  public:
    explicit RopeTableOp(const RopeTable& table) : table_(table) {}

    void run(const OpContext& c) const override {
        c.for_chunks(c.step.rows, 8, [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; t++) {
                c.kernels.rope_table(c.step.positions[t], table_.inv_freq.data(), table_.pairs(),
                                     table_.scale, table_.cos_sin.row(t));
            }
        });
    }
    std::string label() const override { return "rope_table" + dims(table_.pairs()); }

  private:
    RopeTable table_;
};

class EmbedOp : public Op {
  public:
    EmbedOp(const PackedMatrix& matrix, Buffer dest, float scale)
        : matrix_(matrix), dest_(dest), scale_(scale) {}

    void run(const OpContext& c) const override {
        c.for_chunks(c.step.rows, 4, [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; t++) fill(c.step, t);
        });
    }
    std::string label() const override { return "embed" + dims(dest_.width); }

  private:
    void fill(const Step& step, int64_t t) const {
        float* y = dest_.row(t);
        if (step.row_embeddings && step.row_embeddings[t] >= 0) {
            const float* given = step.embeddings + step.row_embeddings[t] * step.embedding_width;
            std::memcpy(y, given, static_cast<size_t>(dest_.width) * sizeof(float));
            return;
        }
        unpack_row(matrix_, step.token_ids[t], y);
        if (scale_ == 1.0f) return;
        for (int64_t k = 0; k < dest_.width; k++) y[k] *= scale_;
    }

    PackedMatrix matrix_;
    Buffer dest_;
    float scale_;
};

class NormOp : public Op {
  public:
    NormOp(Buffer source, Buffer dest, Norm norm) : source_(source), dest_(dest), norm_(std::move(norm)) {}

    void run(const OpContext& c) const override {
        c.for_chunks(c.step.rows_of(source_), 4, [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; t++) norm_.apply(c.kernels, source_.row(t), dest_.row(t));
        });
    }
    std::string label() const override { return "norm" + dims(source_.width); }

  private:
    Buffer source_, dest_;
    Norm norm_;
};

class AddOp : public Op {
  public:
    AddOp(Buffer source, Buffer dest, float scale) : source_(source), dest_(dest), scale_(scale) {}

    void run(const OpContext& c) const override {
        c.for_chunks(c.step.rows_of(source_), 8, [&](int64_t begin, int64_t end) {
            c.kernels.add(source_.row(begin), scale_, (end - begin) * source_.width, dest_.row(begin));
        });
    }
    std::string label() const override { return "add" + dims(source_.width); }

  private:
    Buffer source_, dest_;
    float scale_;
};

class ScaleOp : public Op {
  public:
    ScaleOp(Buffer buffer, float scale) : buffer_(buffer), scale_(scale) {}

    void run(const OpContext& c) const override {
        c.for_chunks(c.step.rows_of(buffer_), 8, [&](int64_t begin, int64_t end) {
            float* y = buffer_.row(begin);
            for (int64_t k = 0; k < (end - begin) * buffer_.width; k++) y[k] *= scale_;
        });
    }
    std::string label() const override { return "scale" + dims(buffer_.width); }

  private:
    Buffer buffer_;
    float scale_;
};

class GatherOp : public Op {
  public:
    GatherOp(Buffer source, Buffer dest) : source_(source), dest_(dest) {}

    void run(const OpContext& c) const override {
        c.for_chunks(c.step.outputs, 16, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; r++) {
                const float* x = source_.row(c.step.output_rows[r]);
                std::memcpy(dest_.row(r), x, static_cast<size_t>(source_.width) * sizeof(float));
            }
        });
    }
    std::string label() const override { return "gather_outputs" + dims(source_.width); }

  private:
    Buffer source_, dest_;
};

}  // namespace

std::unique_ptr<Op> make_rope_table_op(const RopeTable& table) {
    return std::make_unique<RopeTableOp>(table);
}

std::unique_ptr<Op> make_embed_op(const PackedMatrix& matrix, Buffer dest, float scale) {
    return std::make_unique<EmbedOp>(matrix, dest, scale);
}

std::unique_ptr<Op> make_norm_op(Buffer source, Buffer dest, Norm norm) {
    return std::make_unique<NormOp>(source, dest, std::move(norm));
}

std::unique_ptr<Op> make_add_op(Buffer source, Buffer dest, float scale) {
    return std::make_unique<AddOp>(source, dest, scale);
}

std::unique_ptr<Op> make_scale_op(Buffer buffer, float scale) {
    return std::make_unique<ScaleOp>(buffer, scale);
}

std::unique_ptr<Op> make_gather_op(Buffer source, Buffer dest) {
    return std::make_unique<GatherOp>(source, dest);
}

}  // namespace edgewise
