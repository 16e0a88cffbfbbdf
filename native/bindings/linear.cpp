// Doors to packing, quantisation and the matrix products on the calling thread, for the build and for tests.
#include "../linear.h"

#include <nanobind/stl/string.h>

#include <cstdlib>
#include <memory>

#include "../dispatch.h"
#include "matrices.h"

namespace edgewise {

namespace {

using namespace nb::literals;

template <class T, size_t Dims>
Array<T, Dims> output_of(nb::handle object, const char* name, const char* dtype) {
    Array<T, Dims> array;
    if (!nb::try_cast(object, array, false))
        throw std::invalid_argument(std::string(name) + " must be a writable C-contiguous " + dtype +
                                    " array of " + std::to_string(Dims) +
                                    (Dims == 1 ? " dimension" : " dimensions"));
    return array;
}

void pack_matrix(const std::string& format, int layout, int64_t rows, int64_t cols, nb::object source,
                 nb::object packed) {
    const Format f = format_of(format);
    const Layout l = layout_of(layout);
    auto from = array_of<uint8_t, 1>(source, "source");
    auto to = output_of<uint8_t, 1>(packed, "packed", "uint8");
    require_bytes("packed", static_cast<int64_t>(to.size()), packed_bytes(f, l, rows, cols));
    require_bytes("source", static_cast<int64_t>(from.size()), rows * source_row_bytes(f, cols));
    const uint8_t* data = from.data();
    nb::gil_scoped_release unlocked;
    pack(f, l, rows, cols, data, to.data());
}

void unpack_matrix(const std::string& format, int layout, int64_t rows, int64_t cols, nb::object packed,
                   nb::object source) {
    auto from = array_of<uint8_t, 1>(packed, "packed");
    auto to = output_of<uint8_t, 1>(source, "source", "uint8");
    const PackedMatrix w = packed_matrix_of(format, layout, rows, cols, from);
    require_bytes("source", static_cast<int64_t>(to.size()), rows * source_row_bytes(w.format, cols));
    nb::gil_scoped_release unlocked;
    unpack(w, to.data());
}

void unpack_matrix_row(const std::string& format, int layout, int64_t rows, int64_t cols, nb::object packed,
                       int64_t row, nb::object out) {
    auto from = array_of<uint8_t, 1>(packed, "packed");
    auto to = writable_of<1>(out, "out");
    const PackedMatrix w = packed_matrix_of(format, layout, rows, cols, from);
    if (row < 0 || row >= rows)
        throw std::invalid_argument("row " + std::to_string(row) + " of " + std::to_string(rows));
    if (static_cast<int64_t>(to.size()) != cols) throw std::invalid_argument("out must have cols elements");
    unpack_row(w, row, to.data());
}

// Activations in memory of their own. The scales and sums have room to the size quantized_rows_size says.
struct OwnRows {
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<uint8_t, Free> memory;
    QuantizedRows rows;

    OwnRows(int64_t tokens, int64_t cols) {
        const QuantizedRowsSize size = quantized_rows_size(tokens, cols);
        memory.reset(static_cast<uint8_t*>(
            std::aligned_alloc(64, static_cast<size_t>(size.codes + size.scales + size.sums + 64))));
        if (!memory) throw std::bad_alloc();
        uint8_t* scales = memory.get() + size.codes;
        rows = {tokens,
                cols,
                padded_groups(cols),
                reinterpret_cast<int8_t*>(memory.get()),
                reinterpret_cast<float*>(scales),
                reinterpret_cast<int16_t*>(scales + size.scales)};
    }
};

// codes int8 [T * G * 32], scales f32 [T * G], sums int16 [T * G * 2], in the order of native/types.h.
void quantize_rows(const std::string& isa, nb::object x, nb::object codes, nb::object scales,
                   nb::object sums) {
    auto values = array_of<float, 2>(x, "x");
    const int64_t tokens = static_cast<int64_t>(values.shape(0)),
                  cols = static_cast<int64_t>(values.shape(1));
    auto c = output_of<int8_t, 1>(codes, "codes", "int8");
    auto s = writable_of<1>(scales, "scales");
    auto u = output_of<int16_t, 1>(sums, "sums", "int16");
    const int64_t cells = tokens * padded_groups(cols);
    require_bytes("codes", static_cast<int64_t>(c.size()), cells * 32);
    require_bytes("scales", static_cast<int64_t>(s.size()) * 4, cells * 4);
    require_bytes("sums", static_cast<int64_t>(u.size()) * 2, cells * 4);
    const QuantizedRows rows{tokens, cols, padded_groups(cols), c.data(), s.data(), u.data()};
    kernels_for(isa).quantize(values.data(), cols, 0, tokens, rows);
}

// y f32 [T, rows] = x f32 [T, cols] times the matrix; quantised formats quantise x first.
void linear(const std::string& isa, const std::string& format, int layout, int64_t rows, int64_t cols,
            nb::object packed, nb::object x, nb::object y) {
    const Kernels& kernels = kernels_for(isa);
    auto bytes = array_of<uint8_t, 1>(packed, "packed");
    auto in = array_of<float, 2>(x, "x");
    auto out = writable_of<2>(y, "y");
    const PackedMatrix w = packed_matrix_of(format, layout, rows, cols, bytes);
    const int64_t tokens = static_cast<int64_t>(in.shape(0));
    if (static_cast<int64_t>(in.shape(1)) != cols) throw std::invalid_argument("x must be [T, cols]");
    if (out.shape(0) != in.shape(0) || static_cast<int64_t>(out.shape(1)) != rows)
        throw std::invalid_argument("y must be [T, rows]");
    if (reinterpret_cast<uintptr_t>(w.data) % 64 != 0)
        throw std::invalid_argument("packed must begin at an address that is a multiple of 64");
    if (w.layout != kernels.layout && &kernels != &generic_kernels())
        throw std::invalid_argument(isa + " kernels need layout " +
                                    std::to_string(static_cast<int>(kernels.layout)));
    if (tokens == 0) return;
    if (is_float(w.format)) {
        const float* values = in.data();
        nb::gil_scoped_release unlocked;
        return kernels.linear_float(w, values, cols, tokens, 0, w.row_blocks(), out.data(), rows);
    }
    const OwnRows own(tokens, cols);
    const float* values = in.data();
    nb::gil_scoped_release unlocked;
    kernels.quantize(values, cols, 0, tokens, own.rows);
    kernels.linear_quantized(w, own.rows, 0, tokens, 0, w.row_blocks(), out.data(), rows);
}

}  // namespace

void bind_linear(nb::module_& m) {
    m.def(
        "packed_bytes",
        [](const std::string& format, int layout, int64_t rows, int64_t cols) {
            return packed_bytes(format_of(format), layout_of(layout), rows, cols);
        },
        "format"_a, "layout"_a, "rows"_a, "cols"_a, "Bytes of a packed matrix.");
    m.def(
        "source_row_bytes",
        [](const std::string& format, int64_t cols) { return source_row_bytes(format_of(format), cols); },
        "format"_a, "cols"_a, "Bytes of a row of GGUF blocks.");
    m.def("pack", &pack_matrix, "format"_a, "layout"_a, "rows"_a, "cols"_a, "source"_a, "packed"_a,
          "Rows of GGUF blocks into interleaved ones.");
    m.def("unpack", &unpack_matrix, "format"_a, "layout"_a, "rows"_a, "cols"_a, "packed"_a, "source"_a,
          "The inverse of pack, byte for byte.");
    m.def("unpack_row", &unpack_matrix_row, "format"_a, "layout"_a, "rows"_a, "cols"_a, "packed"_a, "row"_a,
          "out"_a, "One row as f32, equal to the GGUF dequantiser's values.");
    m.def("quantize", &quantize_rows, "isa"_a, "x"_a, "codes"_a, "scales"_a, "sums"_a,
          "Activations [T, cols] into int8 groups of 32.");
    m.def("linear", &linear, "isa"_a, "format"_a, "layout"_a, "rows"_a, "cols"_a, "packed"_a, "x"_a, "y"_a,
          "y [T, rows] = x [T, cols] times a packed matrix.");
}

}  // namespace edgewise
