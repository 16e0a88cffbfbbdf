// The door to programs: Python's arguments into the checked C++ forms, the GIL released while a step runs.
#include "../program.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "choices.h"
#include "matrices.h"

namespace edgewise {

namespace {

using namespace nb::literals;

// A packed matrix over an array that it keeps alive.
struct Matrix {
    PackedMatrix packed;
    nb::object data;
};

void make_matrix(Matrix* place, const std::string& format, int layout, int64_t rows, int64_t cols,
                 nb::object data) {
    auto bytes = array_of<uint8_t, 1>(data, "data");
    if (rows < 1 || cols < 1) throw std::invalid_argument("rows and cols must be positive");
    PackedMatrix packed = packed_matrix_of(format, layout, rows, cols, bytes);
    if (reinterpret_cast<uintptr_t>(packed.data) % kAlignment) {
        throw std::invalid_argument("data must begin at an address that is a multiple of 64");
    }
    new (place) Matrix{packed, std::move(data)};
}

Norm make_norm(const std::string& kind, nb::object weight, nb::object bias, float eps) {
    return {norm_kind_of(kind), vector_of<float>(weight, "norm weight"),
            optional_vector_of(bias, "norm bias"), eps};
}

using NormTuple = std::tuple<std::string, nb::object, nb::object, float>;  // kind, weight, bias or None, eps
using TargetTuple =
    std::tuple<nb::object, nb::object, int64_t, int64_t>;  // matrix, bias or None, dest, column
using Embeddings = std::pair<nb::object, nb::object>;      // rows i32 [N], values f32 [N, E]

std::optional<Norm> norm_of(const std::optional<NormTuple>& norm) {
    if (!norm) return std::nullopt;
    return std::apply(make_norm, *norm);
}

// A program and the Python objects whose memory it reads.
struct PyProgram {
    Program program;
    std::vector<nb::object> kept;

    PyProgram(Pool& pool, const std::string& isa, int64_t max_rows, int64_t max_outputs, KvCache& cache)
        : program(pool, kernels_for(isa), max_rows, max_outputs, cache) {}

    const PackedMatrix& keep(nb::object object) {
        Matrix* matrix = nullptr;
        if (!nb::try_cast(object, matrix, false) || !matrix)
            throw std::invalid_argument("matrix must be a Matrix");
        kept.push_back(std::move(object));
        return matrix->packed;
    }
};

void linear(PyProgram& self, int64_t source, const std::vector<TargetTuple>& targets,
            const std::optional<NormTuple>& norm, bool accumulate, float scale) {
    std::vector<LinearTarget> parts;
    for (const auto& [matrix, bias, dest, column] : targets) {
        parts.push_back({self.keep(matrix), optional_vector_of(bias, "bias"), dest, column});
    }
    self.program.linear(source, std::move(parts), norm_of(norm), accumulate, scale);
}

void gated_mlp(PyProgram& self, int64_t source, nb::object gate, nb::object up, const std::string& activation,
               int64_t dest, const std::optional<NormTuple>& norm, nb::object gate_bias, nb::object up_bias) {
    self.program.gated_mlp(source, self.keep(gate), self.keep(up), activation_of(activation), dest,
                           norm_of(norm), optional_vector_of(gate_bias, "gate_bias"),
                           optional_vector_of(up_bias, "up_bias"));
}

void mlp_up(PyProgram& self, int64_t source, nb::object matrix, const std::string& activation, int64_t dest,
            const std::optional<NormTuple>& norm, nb::object bias) {
    self.program.mlp_up(source, self.keep(matrix), activation_of(activation), dest, norm_of(norm),
                        optional_vector_of(bias, "bias"));
}

void head(PyProgram& self, int64_t source, nb::object matrix, const std::optional<NormTuple>& norm,
          nb::object bias, float scale, float soft_cap) {
    self.program.head(source, self.keep(matrix), norm_of(norm), optional_vector_of(bias, "bias"), scale,
                      soft_cap);
}

void attention(PyProgram& self, int64_t layer, int64_t q, int64_t k, int64_t v, int64_t dest,
               int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, int64_t value_dim, float scale,
               std::optional<int64_t> rope_table, const std::string& pairing, nb::object q_norm,
               nb::object k_norm, float norm_eps, const std::string& kind, int64_t window, float soft_cap,
               nb::object sinks) {
    AttentionOptions o;
    o.layer = layer;
    o.q = q;
    o.k = k;
    o.v = v;
    o.dest = dest;
    o.shape = {num_heads, num_kv_heads, head_dim, value_dim, attention_kind_of(kind), window};
    o.scale = scale;
    o.rope_table = rope_table;
    o.interleaved = interleaved_of(pairing);
    o.q_norm = optional_vector_of(q_norm, "q_norm");
    o.k_norm = optional_vector_of(k_norm, "k_norm");
    o.norm_eps = norm_eps;
    o.soft_cap = soft_cap;
    o.sinks = optional_vector_of(sinks, "sinks");
    self.program.attention(std::move(o));
}

void check_length(size_t length, size_t expected, const char* name) {
    if (length == expected) return;
    throw std::invalid_argument(std::string(name) + " has length " + std::to_string(length) + ", expected " +
                                std::to_string(expected));
}

bool run(PyProgram& self, nb::object token_ids, nb::object positions, nb::object row_starts,
         nb::object context_lens, nb::object block_tables, nb::object output_rows,
         const std::optional<Embeddings>& embeddings) {
    auto ids = array_of<int32_t, 1>(token_ids, "token_ids"),
         places = array_of<int32_t, 1>(positions, "positions");
    auto starts = array_of<int32_t, 1>(row_starts, "row_starts");
    auto contexts = array_of<int32_t, 1>(context_lens, "context_lens");
    auto tables = array_of<int32_t, 2>(block_tables, "block_tables");
    auto outputs = array_of<int32_t, 1>(output_rows, "output_rows");
    check_length(places.shape(0), ids.shape(0), "positions");
    check_length(starts.shape(0), contexts.shape(0) + 1, "row_starts");
    check_length(tables.shape(0), contexts.shape(0), "block_tables");
    Step step;
    step.rows = static_cast<int64_t>(ids.shape(0));
    step.sequences = static_cast<int64_t>(contexts.shape(0));
    step.outputs = static_cast<int64_t>(outputs.shape(0));
    step.table_width = static_cast<int64_t>(tables.shape(1));
    step.token_ids = ids.data();
    step.positions = places.data();
    step.row_starts = starts.data();
    step.context_lens = contexts.data();
    step.block_tables = tables.data();
    step.output_rows = outputs.data();
    Array<const int32_t, 1> rows;
    Array<const float, 2> values;
    if (embeddings) {
        rows = array_of<int32_t, 1>(embeddings->first, "embedding rows");
        values = array_of<float, 2>(embeddings->second, "embedding values");
        check_length(values.shape(0), rows.shape(0), "embedding values");
        step.num_embeddings = static_cast<int64_t>(rows.shape(0));
        step.embedding_width = static_cast<int64_t>(values.shape(1));
        step.embedding_rows = rows.data();
        step.embeddings = values.data();
    }
    nb::gil_scoped_release release;
    return self.program.run(step);
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> rows_of(nb::handle self, int64_t buffer, int64_t rows) {
    const Program& program = nb::cast<PyProgram&>(self).program;
    const Buffer& contents = program.contents(buffer);
    if (rows < 0 || rows > program.rows_of(buffer)) {
        throw std::invalid_argument("buffer " + std::to_string(buffer) + " has at most " +
                                    std::to_string(program.rows_of(buffer)) + " rows, asked for " +
                                    std::to_string(rows));
    }
    size_t shape[] = {static_cast<size_t>(rows), static_cast<size_t>(contents.width)};
    return {contents.data, 2, shape, self};
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> logits(nb::handle self, int64_t rows) {
    const Program& program = nb::cast<PyProgram&>(self).program;
    if (rows < 0 || rows > program.max_outputs()) {
        throw std::invalid_argument("there are at most " + std::to_string(program.max_outputs()) +
                                    " rows of logits, asked for " + std::to_string(rows));
    }
    size_t shape[] = {static_cast<size_t>(rows), static_cast<size_t>(program.vocab_size())};
    return {program.logits(), 2, shape, self};
}

std::vector<std::tuple<std::string, double, int64_t>> profile_report(const PyProgram& self) {
    std::vector<std::tuple<std::string, double, int64_t>> report;
    for (ProfileEntry& entry : self.program.profile_report()) {
        report.emplace_back(std::move(entry.label), entry.seconds, entry.calls);
    }
    return report;
}

}  // namespace

void bind_program(nb::module_& m) {
    nb::class_<Matrix>(m, "Matrix", "A packed weight matrix [rows, cols] over `data`, which it keeps alive.")
        .def("__init__", &make_matrix, "format"_a, "layout"_a, "rows"_a, "cols"_a, "data"_a)
        .def_prop_ro("format", [](const Matrix& self) { return traits(self.packed.format).name; })
        .def_prop_ro("layout", [](const Matrix& self) { return static_cast<int>(self.packed.layout); })
        .def_prop_ro("rows", [](const Matrix& self) { return self.packed.rows; })
        .def_prop_ro("cols", [](const Matrix& self) { return self.packed.cols; });

    nb::class_<PyProgram>(m, "Program", "A model as a list of operations, built once and run once a step.")
        .def(nb::init<Pool&, const std::string&, int64_t, int64_t, KvCache&>(), "pool"_a, "isa"_a,
             "max_rows"_a, "max_outputs"_a, "cache"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>())
        .def_prop_ro("isa", [](const PyProgram& self) { return self.program.kernels().isa; })
        .def(
            "buffer", [](PyProgram& self, int64_t width) { return self.program.buffer(width); }, "width"_a)
        .def(
            "output_buffer", [](PyProgram& self, int64_t width) { return self.program.output_buffer(width); },
            "width"_a)
        .def(
            "rope_table",
            [](PyProgram& self, nb::object inv_freq, float scale) {
                return self.program.rope_table(vector_of<double>(inv_freq, "inv_freq"), scale);
            },
            "inv_freq"_a, "scale"_a)
        .def(
            "embed",
            [](PyProgram& self, nb::object matrix, int64_t dest, float scale) {
                self.program.embed(self.keep(matrix), dest, scale);
            },
            "matrix"_a, "dest"_a, "scale"_a = 1.0f)
        .def(
            "norm",
            [](PyProgram& self, int64_t source, int64_t dest, const std::string& kind, nb::object weight,
               nb::object bias,
               float eps) { self.program.norm(source, dest, make_norm(kind, weight, bias, eps)); },
            "source"_a, "dest"_a, "kind"_a, "weight"_a, "bias"_a.none(), "eps"_a)
        .def("linear", &linear, "source"_a, "targets"_a, "norm"_a = nb::none(), "accumulate"_a = false,
             "scale"_a = 1.0f)
        .def("gated_mlp", &gated_mlp, "source"_a, "gate"_a, "up"_a, "activation"_a, "dest"_a,
             "norm"_a = nb::none(), "gate_bias"_a = nb::none(), "up_bias"_a = nb::none())
        .def("mlp_up", &mlp_up, "source"_a, "matrix"_a, "activation"_a, "dest"_a, "norm"_a = nb::none(),
             "bias"_a = nb::none())
        .def("attention", &attention, "layer"_a, "q"_a, "k"_a, "v"_a, "dest"_a, "num_heads"_a,
             "num_kv_heads"_a, "head_dim"_a, "value_dim"_a, "scale"_a, "rope_table"_a = nb::none(),
             "pairing"_a = "half", "q_norm"_a = nb::none(), "k_norm"_a = nb::none(), "norm_eps"_a = 0.0f,
             "kind"_a = "full", "window"_a = 0, "soft_cap"_a = 0.0f, "sinks"_a = nb::none())
        .def(
            "add",
            [](PyProgram& self, int64_t source, int64_t dest, float scale) {
                self.program.add(source, dest, scale);
            },
            "source"_a, "dest"_a, "scale"_a = 1.0f)
        .def(
            "scale", [](PyProgram& self, int64_t buffer, float scale) { self.program.scale(buffer, scale); },
            "buffer"_a, "scale"_a)
        .def(
            "gather_outputs",
            [](PyProgram& self, int64_t source, int64_t dest) { self.program.gather_outputs(source, dest); },
            "source"_a, "dest"_a)
        .def("head", &head, "source"_a, "matrix"_a, "norm"_a = nb::none(), "bias"_a = nb::none(),
             "scale"_a = 1.0f, "soft_cap"_a = 0.0f)
        .def("run", &run, "token_ids"_a, "positions"_a, "row_starts"_a, "context_lens"_a, "block_tables"_a,
             "output_rows"_a, "embeddings"_a = nb::none())
        .def("rows", &rows_of, "buffer"_a, "rows"_a)
        .def("logits", &logits, "rows"_a)
        .def("cancel", [](PyProgram& self) { self.program.cancel(); })
        .def(
            "profile", [](PyProgram& self, bool enable) { self.program.profile(enable); }, "enable"_a)
        .def("profile_report", &profile_report);
}

}  // namespace edgewise
