// Packing: row-major GGUF rows <-> interleaved blocks. A permutation of bits, so pack and unpack are exact
// inverses.
#include <algorithm>

#include "blocks.h"
#include "linear.h"

namespace edgewise {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

PackedMatrix describe(Format format, Layout layout, int64_t rows, int64_t cols) {
    PackedMatrix w;
    w.format = format;
    w.layout = layout;
    w.rows = rows;
    w.cols = cols;
    return w;
}

// Copies elements of a float matrix between [row][k] and [row block][k][lane]; kToPacked gives the direction.
template <class Element, bool kToPacked>
void move_elements(const PackedMatrix& w, uint8_t* source, uint8_t* packed) {
    constexpr int64_t kSize = sizeof(Element);
    const int64_t lanes = w.interleave();
    for (int64_t row = 0; row < w.rows; ++row) {
        uint8_t* a = source + row * w.cols * kSize;
        uint8_t* b = packed + (row / lanes * w.cols * lanes + row % lanes) * kSize;
        for (int64_t k = 0; k < w.cols; ++k, a += kSize, b += lanes * kSize)
            std::memcpy(kToPacked ? b : a, kToPacked ? a : b, kSize);
    }
}

template <bool kToPacked>
void move_floats(const PackedMatrix& w, uint8_t* source, uint8_t* packed) {
    if (w.format == Format::F32) return move_elements<uint32_t, kToPacked>(w, source, packed);
    return move_elements<uint16_t, kToPacked>(w, source, packed);
}

void unpack_float_row(const PackedMatrix& w, int64_t row, float* out) {
    const int64_t lanes = w.interleave();
    const int64_t size = traits(w.format).bytes;
    const uint8_t* element = w.data + (row / lanes * w.cols * lanes + row % lanes) * size;
    for (int64_t k = 0; k < w.cols; ++k, element += lanes * size) {
        if (w.format == Format::F32) std::memcpy(out + k, element, sizeof(float));
        if (w.format == Format::F16) out[k] = half_to_float(load_u16(element));
        if (w.format == Format::BF16) out[k] = bfloat_to_float(load_u16(element));
    }
}

// The rounding is the GGUF dequantiser's: d * sc, then times the code, then plus the minimum.
void dequantize_block(Format format, const RowBlock& block, float* out) {
    const FormatTraits& t = traits(format);
    for (int64_t k = 0; k < t.cols; ++k) {
        float scale = group_scale(format, block, k / 32);
        if (format == Format::Q6_K) scale *= static_cast<float>(static_cast<int8_t>(block.scales[k / 16]));
        const int code = t.bits == 8 ? static_cast<int8_t>(block.codes[k]) : block.codes[k] - t.offset;
        const float value = scale * static_cast<float>(code);
        out[k] = t.minimum ? value + group_minimum(format, block, k / 32) : value;
    }
}

}  // namespace

int64_t source_row_bytes(Format format, int64_t cols) {
    const FormatTraits& t = traits(format);
    if (cols <= 0 || cols % t.cols != 0)
        throw std::invalid_argument(std::string(t.name) + " rows need a positive multiple of " +
                                    std::to_string(t.cols) + " columns, not " + std::to_string(cols));
    return cols / t.cols * t.bytes;
}

int64_t packed_bytes(Format format, Layout layout, int64_t rows, int64_t cols) {
    const int64_t lanes = static_cast<int64_t>(layout);
    if (rows < 0) throw std::invalid_argument("a matrix cannot have " + std::to_string(rows) + " rows");
    return round_up(round_up(rows, lanes) * source_row_bytes(format, cols), 64);
}

void pack(Format format, Layout layout, int64_t rows, int64_t cols, const uint8_t* source, uint8_t* packed) {
    const PackedMatrix w = describe(format, layout, rows, cols);
    std::memset(packed, 0, static_cast<size_t>(packed_bytes(format, layout, rows, cols)));
    if (is_float(format)) return move_floats<true>(w, const_cast<uint8_t*>(source), packed);
    const int64_t row_bytes = source_row_bytes(format, cols);
    const int64_t lanes = w.interleave();
    const FormatTraits& t = traits(format);
    RowBlock block;
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t b = 0; b < cols / t.cols; ++b) {
            read_source_block(format, source + row * row_bytes + b * t.bytes, block);
            uint8_t* target = packed + row / lanes * lanes * row_bytes + b * lanes * t.bytes;
            store_lane(format, lanes, row % lanes, block, target);
        }
    }
}

void unpack(const PackedMatrix& w, uint8_t* source) {
    if (is_float(w.format)) return move_floats<false>(w, source, const_cast<uint8_t*>(w.data));
    const int64_t row_bytes = source_row_bytes(w.format, w.cols);
    const int64_t lanes = w.interleave();
    const FormatTraits& t = traits(w.format);
    RowBlock block;
    for (int64_t row = 0; row < w.rows; ++row) {
        for (int64_t b = 0; b < w.cols / t.cols; ++b) {
            const uint8_t* from = w.data + row / lanes * lanes * row_bytes + b * lanes * t.bytes;
            load_lane(w.format, lanes, row % lanes, from, block);
            write_source_block(w.format, block, source + row * row_bytes + b * t.bytes);
        }
    }
}

void unpack_row(const PackedMatrix& w, int64_t row, float* out) {
    if (is_float(w.format)) return unpack_float_row(w, row, out);
    const int64_t lanes = w.interleave();
    const FormatTraits& t = traits(w.format);
    const uint8_t* from = w.data + row / lanes * lanes * source_row_bytes(w.format, w.cols);
    RowBlock block;
    for (int64_t b = 0; b < w.cols / t.cols; ++b) {
        load_lane(w.format, lanes, row % lanes, from + b * lanes * t.bytes, block);
        dequantize_block(w.format, block, out + b * t.cols);
    }
}

QuantizedRowsSize quantized_rows_size(int64_t tokens, int64_t cols) {
    const int64_t cells = tokens * padded_groups(cols);
    return {round_up(cells * kGroup, 64), round_up(cells * 4, 64), round_up(cells * 4, 64)};
}

}  // namespace edgewise
