// Building a program: every shape is checked here, once.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "formats.h"
#include "program.h"

namespace edgewise {

namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 24;

void require(bool good, const std::string& message) {
    if (!good) throw std::invalid_argument(message);
}

std::string text(int64_t number) { return std::to_string(number); }

void check_vector(const std::vector<float>& values, int64_t size, const char* name) {
    require(values.empty() || static_cast<int64_t>(values.size()) == size,
            std::string(name) + " has " + text(static_cast<int64_t>(values.size())) + " values, expected " +
                text(size));
}

void check_norm(const std::optional<Norm>& norm, int64_t width) {
    if (!norm) return;
    require(!norm->weight.empty(), "norm weight is missing");
    check_vector(norm->weight, width, "norm weight");
    check_vector(norm->bias, width, "norm bias");
    require(norm->kind == NormKind::Layer || norm->bias.empty(), "an rms norm takes no bias");
    require(norm->eps >= 0.0f, "norm eps must not be negative");
}

std::string shape_of(const std::vector<Product>& products) {
    std::string shape = " " + text(products[0].matrix.cols) + "->";
    for (size_t i = 0; i < products.size(); i++) {
        const Product& p = products[i];
        shape += (i ? "+" : "") + text(p.matrix.rows) + " " + traits(p.matrix.format).name;
        if (p.up && p.up->format != p.matrix.format) shape += std::string("*") + traits(p.up->format).name;
    }
    return shape;
}

}  // namespace

Program::Program(Pool& pool, const Kernels& kernels, int64_t max_rows, int64_t max_outputs, KvCache& cache)
    : pool_(pool), kernels_(kernels), cache_(cache), max_rows_(max_rows), max_outputs_(max_outputs) {
    require(max_rows >= 1 && max_rows <= kMaxWidth, "max_rows must be between 1 and 2^24");
    require(max_outputs >= 1 && max_outputs <= kMaxWidth, "max_outputs must be between 1 and 2^24");
}

Buffer Program::new_buffer(int64_t width, bool of_outputs) {
    require(width >= 1 && width <= kMaxWidth,
            "a buffer's width must be between 1 and 2^24, got " + text(width));
    memory_.emplace_back(width * (of_outputs ? max_outputs_ : max_rows_) *
                         static_cast<int64_t>(sizeof(float)));
    return {reinterpret_cast<float*>(memory_.back().data()), width, of_outputs};
}

int64_t Program::buffer(int64_t width) {
    buffers_.push_back(new_buffer(width, false));
    return static_cast<int64_t>(buffers_.size()) - 1;
}

int64_t Program::output_buffer(int64_t width) {
    buffers_.push_back(new_buffer(width, true));
    return static_cast<int64_t>(buffers_.size()) - 1;
}

const Buffer& Program::at(int64_t buffer, const char* name) const {
    require(buffer >= 0 && buffer < static_cast<int64_t>(buffers_.size()),
            std::string(name) + ": there is no buffer " + text(buffer));
    return buffers_[static_cast<size_t>(buffer)];
}

void Program::check_matrix(const PackedMatrix& matrix, const Buffer& source, const char* name) const {
    require(matrix.cols == source.width, std::string(name) + " is [" + text(matrix.rows) + ", " +
                                             text(matrix.cols) + "] but its input has width " +
                                             text(source.width));
}

void Program::append(std::unique_ptr<Op> op) {
    if (running_.load()) throw std::runtime_error("a program cannot be changed while it runs");
    scratch_bytes_ = std::max(scratch_bytes_, op->scratch_bytes());
    shared_bytes_ = std::max(shared_bytes_, op->shared_bytes());
    ops_.push_back(std::move(op));
}

int64_t Program::rope_table(std::vector<double> inv_freq, float scale) {
    require(!inv_freq.empty(), "inv_freq is empty");
    RopeTable table;
    table.inv_freq = std::move(inv_freq);
    table.scale = scale;
    table.cos_sin = new_buffer(2 * table.pairs(), false);
    tables_.push_back(table);
    append(make_rope_table_op(table));
    // Tables come first: they are filled before any layer reads them.
    std::rotate(ops_.begin(), ops_.end() - 1, ops_.end());
    return static_cast<int64_t>(tables_.size()) - 1;
}

void Program::embed(const PackedMatrix& matrix, int64_t dest, float scale) {
    const Buffer& y = at(dest, "dest");
    require(!y.of_outputs, "embed writes rows, not outputs");
    require(matrix.cols == y.width,
            "the embedding has width " + text(matrix.cols) + " but dest has width " + text(y.width));
    require(embed_width_ == 0 || embed_width_ == y.width, "all embed ops must have the same width");
    embed_rows_ = embed_width_ == 0 ? matrix.rows : std::min(embed_rows_, matrix.rows);
    embed_width_ = y.width;
    append(make_embed_op(matrix, y, scale));
}

void Program::norm(int64_t source, int64_t dest, Norm norm) {
    const Buffer &x = at(source, "source"), &y = at(dest, "dest");
    require(x.width == y.width && x.of_outputs == y.of_outputs, "norm: source and dest differ in shape");
    check_norm(norm, x.width);
    append(make_norm_op(x, y, std::move(norm)));
}

void Program::add(int64_t source, int64_t dest, float scale) {
    const Buffer &x = at(source, "source"), &y = at(dest, "dest");
    require(x.width == y.width && x.of_outputs == y.of_outputs, "add: source and dest differ in shape");
    append(make_add_op(x, y, scale));
}

void Program::scale(int64_t buffer, float scale) { append(make_scale_op(at(buffer, "buffer"), scale)); }

void Program::gather_outputs(int64_t source, int64_t dest) {
    const Buffer &x = at(source, "source"), &y = at(dest, "dest");
    require(!x.of_outputs && y.of_outputs, "gather_outputs reads rows and writes an output buffer");
    require(x.width == y.width, "gather_outputs: source and dest differ in width");
    append(make_gather_op(x, y));
}

void Program::add_product(const std::string& name, const Buffer& source, std::optional<Norm> norm,
                          std::vector<Product> products) {
    require(!products.empty(), name + " needs at least one matrix");
    check_norm(norm, source.width);
    for (const Product& p : products) {
        check_matrix(p.matrix, source, name.c_str());
        check_vector(p.bias, p.matrix.rows, "bias");
        require(p.dest.of_outputs == source.of_outputs, name + ": source and dest differ in kind");
        require(p.dest.data != source.data, name + ": source and dest must be different buffers");
        require(p.column >= 0 && p.column + p.matrix.rows <= p.dest.width,
                name + ": " + text(p.matrix.rows) + " rows at column " + text(p.column) +
                    " do not fit dest of width " + text(p.dest.width));
        if (!p.up) continue;
        check_matrix(*p.up, source, "up");
        require(p.up->rows == p.matrix.rows, "gate and up differ in rows");
        check_vector(p.up_bias, p.matrix.rows, "up_bias");
    }
    std::string label = name + shape_of(products);
    int64_t most_rows = source.of_outputs ? max_outputs_ : max_rows_;
    append(make_product_op(std::move(label), kernels_, pool_.threads(), most_rows, source, std::move(norm),
                           std::move(products)));
}

void Program::linear(int64_t source, std::vector<LinearTarget> targets, std::optional<Norm> norm,
                     bool accumulate, float scale) {
    std::vector<Product> products;
    for (LinearTarget& target : targets) {
        Product p;
        p.matrix = target.matrix;
        p.bias = std::move(target.bias);
        p.dest = at(target.dest, "dest");
        p.column = target.column;
        p.accumulate = accumulate;
        p.scale = scale;
        products.push_back(std::move(p));
    }
    add_product("linear", at(source, "source"), std::move(norm), std::move(products));
}

void Program::gated_mlp(int64_t source, const PackedMatrix& gate, const PackedMatrix& up,
                        Activation activation, int64_t dest, std::optional<Norm> norm,
                        std::vector<float> gate_bias, std::vector<float> up_bias) {
    Product p;
    p.matrix = gate;
    p.bias = std::move(gate_bias);
    p.up = up;
    p.up_bias = std::move(up_bias);
    p.activation = activation;
    p.dest = at(dest, "dest");
    add_product("gated_mlp", at(source, "source"), std::move(norm), {p});
}

void Program::mlp_up(int64_t source, const PackedMatrix& matrix, Activation activation, int64_t dest,
                     std::optional<Norm> norm, std::vector<float> bias) {
    Product p;
    p.matrix = matrix;
    p.bias = std::move(bias);
    p.activation = activation;
    p.dest = at(dest, "dest");
    add_product("mlp_up", at(source, "source"), std::move(norm), {p});
}

void Program::head(int64_t source, const PackedMatrix& matrix, std::optional<Norm> norm,
                   std::vector<float> bias, float scale, float soft_cap) {
    const Buffer& x = at(source, "source");
    require(x.of_outputs, "head reads an output buffer");
    require(!logits_.data, "a program has one head");
    require(soft_cap >= 0.0f, "soft_cap must not be negative");
    Product p;
    p.matrix = matrix;
    p.bias = std::move(bias);
    p.scale = scale;
    p.soft_cap = soft_cap;
    p.dest = new_buffer(matrix.rows, true);
    add_product("head", x, std::move(norm), {p});
    logits_ = p.dest;
}

std::shared_ptr<AttentionPlan> Program::plan_for(const AttentionShape& shape) {
    auto same = [&](const auto& plan) { return plan->shape() == shape; };
    auto found = std::find_if(plans_.begin(), plans_.end(), same);
    if (found != plans_.end()) return *found;
    plans_.push_back(std::make_shared<AttentionPlan>(shape, pool_.threads()));
    return plans_.back();
}

void Program::attention(AttentionOptions o) {
    const AttentionShape& s = o.shape;
    require(o.layer >= 0 && o.layer < cache_.num_layers(), "the cache has no layer " + text(o.layer));
    AttentionConfig config;
    config.kv = cache_.layer(o.layer);
    require(s.num_heads > 0 && s.num_kv_heads > 0 && s.num_heads % s.num_kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads");
    require(config.kv.kv_heads == s.num_kv_heads && config.kv.key_dim == s.key_dim &&
                config.kv.value_dim == s.value_dim,
            "attention differs in shape from layer " + text(o.layer) + " of the cache");
    require(s.kind == AttentionKind::Full || s.window > 0,
            "sliding and chunked attention need a positive window");
    require(o.soft_cap >= 0.0f, "soft_cap must not be negative");
    auto take = [&](int64_t buffer, int64_t width, const char* name) {
        const Buffer& b = at(buffer, name);
        require(b.width == width && !b.of_outputs,
                std::string(name) + " must be a buffer of rows of width " + text(width));
        return b;
    };
    config.q = take(o.q, s.num_heads * s.key_dim, "q");
    config.k = take(o.k, s.num_kv_heads * s.key_dim, "k");
    config.v = take(o.v, s.num_kv_heads * s.value_dim, "v");
    config.dest = take(o.dest, s.num_heads * s.value_dim, "dest");
    require(o.dest != o.q, "attention: q and dest must be different buffers");
    check_vector(o.q_norm, s.key_dim, "q_norm");
    check_vector(o.k_norm, s.key_dim, "k_norm");
    check_vector(o.sinks, s.num_heads, "sinks");
    if (o.rope_table) {
        require(*o.rope_table >= 0 && *o.rope_table < static_cast<int64_t>(tables_.size()),
                "there is no rope table " + text(*o.rope_table));
        config.rope = tables_[static_cast<size_t>(*o.rope_table)];
        require(2 * config.rope->pairs() <= s.key_dim,
                "the rope table rotates more than head_dim components");
    }
    config.scale = o.scale;
    config.soft_cap = o.soft_cap;
    config.interleaved = o.interleaved;
    config.q_norm = std::move(o.q_norm);
    config.k_norm = std::move(o.k_norm);
    config.norm_eps = o.norm_eps;
    config.sinks = std::move(o.sinks);
    append(make_attention_op(std::move(config), plan_for(s)));
}

}  // namespace edgewise
