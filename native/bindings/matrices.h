// Packed matrices from Python: format and layout by name and number, bytes of the size they imply.
#pragma once

#include "../formats.h"
#include "../linear.h"
#include "arrays.h"

namespace edgewise {

inline Format format_of(const std::string& name) {
    for (const FormatTraits& format : kFormats)
        if (name == format.name) return format.format;
    throw std::invalid_argument("unknown weight format '" + name + "'");
}

inline Layout layout_of(int layout) {
    if (layout != 4 && layout != 8 && layout != 16)
        throw std::invalid_argument("layout must be 4, 8 or 16, got " + std::to_string(layout));
    return static_cast<Layout>(layout);
}

inline void require_bytes(const char* name, int64_t actual, int64_t expected) {
    if (actual != expected)
        throw std::invalid_argument(std::string(name) + " must have " + std::to_string(expected) +
                                    " bytes, not " + std::to_string(actual));
}

inline PackedMatrix packed_matrix_of(const std::string& format, int layout, int64_t rows, int64_t cols,
                                     const Array<const uint8_t, 1>& packed) {
    const PackedMatrix w{
        format_of(format), layout_of(layout), rows, cols, packed.data(), static_cast<int64_t>(packed.size())};
    require_bytes("packed", w.bytes, packed_bytes(w.format, w.layout, rows, cols));
    return w;
}

}  // namespace edgewise
