// Doors to the element-wise kernels, one row (or one set of heads) at a time, for tests and the NumPy
// definition beside them.
#include "../elementwise.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../dispatch.h"
#include "arrays.h"
#include "choices.h"

namespace edgewise {

namespace {

using namespace nb::literals;

struct Row {
    Array<const float, 1> input;
    Array<float, 1> output;
    int64_t width() const { return static_cast<int64_t>(input.shape(0)); }
};

Row row_of(nb::object x, nb::object y) {
    Row row{array_of<float, 1>(x, "x"), writable_of<1>(y, "y")};
    if (row.input.shape(0) != row.output.shape(0)) throw std::invalid_argument("x and y differ in length");
    return row;
}

const float* same_length(const Array<const float, 1>& array, int64_t width, const char* name) {
    if (static_cast<int64_t>(array.shape(0)) != width) {
        throw std::invalid_argument(std::string(name) + " and x differ in length");
    }
    return array.data();
}

void norm(const std::string& isa, const std::string& kind, nb::object x, nb::object weight, nb::object bias,
          float eps, nb::object y) {
    const Kernels& kernels = kernels_for(isa);
    Row row = row_of(x, y);
    auto w = array_of<float, 1>(weight, "weight");
    same_length(w, row.width(), "weight");
    if (norm_kind_of(kind) == NormKind::Rms) {
        return kernels.rms_norm(row.input.data(), w.data(), eps, row.width(), row.output.data());
    }
    Array<const float, 1> b;
    if (!bias.is_none()) same_length(b = array_of<float, 1>(bias, "bias"), row.width(), "bias");
    kernels.layer_norm(row.input.data(), w.data(), bias.is_none() ? nullptr : b.data(), eps, row.width(),
                       row.output.data());
}

void activation(const std::string& isa, const std::string& kind, nb::object x, nb::object y) {
    Row row = row_of(x, y);
    kernels_for(isa).activation(activation_of(kind), row.input.data(), row.width(), row.output.data());
}

void gated_activation(const std::string& isa, const std::string& kind, nb::object gate, nb::object up,
                      nb::object y) {
    Row row = row_of(gate, y);
    auto u = array_of<float, 1>(up, "up");
    kernels_for(isa).gated_activation(activation_of(kind), row.input.data(),
                                      same_length(u, row.width(), "up"), row.width(), row.output.data());
}

void add(const std::string& isa, nb::object x, float scale, nb::object y) {
    Row row = row_of(x, y);
    kernels_for(isa).add(row.input.data(), scale, row.width(), row.output.data());
}

void soft_cap(const std::string& isa, nb::object x, float cap, nb::object y) {
    Row row = row_of(x, y);
    kernels_for(isa).soft_cap(row.input.data(), cap, row.width(), row.output.data());
}

void rope(const std::string& isa, nb::object x, double position, nb::object inv_freq, float scale,
          const std::string& pairing) {
    const Kernels& kernels = kernels_for(isa);
    auto heads = writable_of<2>(x, "x");
    auto frequencies = vector_of<double>(inv_freq, "inv_freq");
    auto pairs = static_cast<int64_t>(frequencies.size());
    if (2 * frequencies.size() > heads.shape(1))
        throw std::invalid_argument("inv_freq is longer than half a head");
    std::vector<float> cos_sin(2 * frequencies.size());
    kernels.rope_table(position, frequencies.data(), pairs, scale, cos_sin.data());
    kernels.rope(heads.data(), static_cast<int64_t>(heads.shape(0)), static_cast<int64_t>(heads.shape(1)),
                 pairs, interleaved_of(pairing), cos_sin.data());
}

}  // namespace

void bind_elementwise(nb::module_& m) {
    m.def("norm", &norm, "isa"_a, "kind"_a, "x"_a, "weight"_a, "bias"_a.none(), "eps"_a, "y"_a);
    m.def("activation", &activation, "isa"_a, "kind"_a, "x"_a, "y"_a);
    m.def("gated_activation", &gated_activation, "isa"_a, "kind"_a, "gate"_a, "up"_a, "y"_a);
    m.def("add", &add, "isa"_a, "x"_a, "scale"_a, "y"_a);
    m.def("soft_cap", &soft_cap, "isa"_a, "x"_a, "cap"_a, "y"_a);
    m.def("rope", &rope, "isa"_a, "x"_a, "position"_a, "inv_freq"_a, "scale"_a, "pairing"_a);
    m.def("available_isas", &available_isas, "Instruction sets this machine and build can run, best first.");
    m.def(
        "isa_layout", [](const std::string& isa) { return static_cast<int>(kernels_for(isa).layout); },
        "isa"_a,
        "Rows interleaved in the weight layout that the kernels of `isa` (or \"auto\") are written for.");
}

}  // namespace edgewise
