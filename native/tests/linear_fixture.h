// What the tests of linear share: guarded memory, random matrices and activations, exact comparison.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "blocks.h"
#include "check.h"
#include "dispatch.h"

namespace edgewise::testing {

inline constexpr Format kQuantized[] = {Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1,
                                        Format::Q8_0, Format::Q4_K, Format::Q5_K, Format::Q6_K};
inline constexpr Format kFloats[] = {Format::F32, Format::F16, Format::BF16};
inline constexpr Layout kLayouts[] = {Layout::R4, Layout::R8, Layout::R16};
inline constexpr uint32_t kSeed = 20240817;

// An array aligned to 64 bytes with a guard band on either side, whose damage is reported when it goes.
template <class T>
class Guarded {
  public:
    explicit Guarded(int64_t count)
        : count_(count), bytes_(static_cast<size_t>(count) * sizeof(T) + 2 * kBand) {
        memory_ = static_cast<uint8_t*>(std::aligned_alloc(64, (bytes_ + 63) / 64 * 64));
        std::memset(memory_, kMark, bytes_);
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    ~Guarded() {
        for (size_t i = 0; i < kBand; ++i)
            CHECK(memory_[i] == kMark && memory_[bytes_ - 1 - i] == kMark, "guard band overwritten");
        std::free(memory_);
    }
    T* data() { return reinterpret_cast<T*>(memory_ + kBand); }
    const T* data() const { return reinterpret_cast<const T*>(memory_ + kBand); }
    int64_t size() const { return count_; }

  private:
    static constexpr size_t kBand = 256;
    static constexpr uint8_t kMark = 0xa5;
    int64_t count_;
    size_t bytes_;
    uint8_t* memory_;
};

struct Random {
    std::mt19937 engine{kSeed};
    float normal() { return std::normal_distribution<float>()(engine); }
    uint32_t bits() { return engine(); }
};

// Random source bytes: any code and sub-scale, f16 scales of a sane size.
inline std::vector<uint8_t> random_source(Format format, int64_t rows, int64_t cols, Random& random) {
    const FormatTraits& t = traits(format);
    std::vector<uint8_t> bytes(static_cast<size_t>(rows * source_row_bytes(format, cols)));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.bits());
    if (format == Format::F32) {
        for (int64_t i = 0; i < rows * cols; ++i) {
            const float value = random.normal();
            std::memcpy(bytes.data() + i * 4, &value, 4);
        }
    } else if (is_float(format)) {
        for (size_t i = 1; i < bytes.size(); i += 2)
            bytes[i] = static_cast<uint8_t>(0x38 | (bytes[i] & 0x83));
    } else {
        for (int64_t b = 0; b < rows * cols / t.cols; ++b) {
            RowBlock block;
            read_source_block(format, bytes.data() + b * t.bytes, block);
            block.d = static_cast<uint16_t>(0x1c00 + random.bits() % 0x1000);
            block.m = static_cast<uint16_t>(0x9c00 + random.bits() % 0x1000);
            write_source_block(format, block, bytes.data() + b * t.bytes);
        }
    }
    return bytes;
}

struct Matrix {
    std::vector<uint8_t> source;
    std::unique_ptr<Guarded<uint8_t>> packed;
    PackedMatrix view;
};

inline Matrix packed_matrix(Format format, Layout layout, int64_t rows, int64_t cols,
                            std::vector<uint8_t> source) {
    Matrix m;
    m.source = std::move(source);
    const int64_t bytes = packed_bytes(format, layout, rows, cols);
    m.packed = std::make_unique<Guarded<uint8_t>>(bytes);
    pack(format, layout, rows, cols, m.source.data(), m.packed->data());
    m.view = {format, layout, rows, cols, m.packed->data(), bytes};
    return m;
}

inline Matrix random_matrix(Format format, Layout layout, int64_t rows, int64_t cols, Random& random) {
    return packed_matrix(format, layout, rows, cols, random_source(format, rows, cols, random));
}

inline std::string describe(const PackedMatrix& w, int64_t tokens) {
    return std::string(traits(w.format).name) + " R" + std::to_string(w.interleave()) + " [" +
           std::to_string(w.rows) + ", " + std::to_string(w.cols) + "] T=" + std::to_string(tokens) +
           " seed " + std::to_string(kSeed);
}

inline bool same(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline void check_equal(const float* expected, const float* actual, int64_t count, const std::string& what) {
    for (int64_t i = 0; i < count; ++i) {
        if (same(expected[i], actual[i])) continue;
        return CHECK(false, what + ": cell " + std::to_string(i) + " is " + std::to_string(actual[i]) +
                                ", not " + std::to_string(expected[i]));
    }
}

struct Activations {
    Guarded<int8_t> codes;
    Guarded<float> scales;
    Guarded<int16_t> sums;
    QuantizedRows view;

    Activations(int64_t tokens, int64_t cols)
        : codes(quantized_rows_size(tokens, cols).codes),
          scales(quantized_rows_size(tokens, cols).scales / 4),
          sums(quantized_rows_size(tokens, cols).sums / 2),
          view{tokens, cols, padded_groups(cols), codes.data(), scales.data(), sums.data()} {}
};

// Normal values with groups that are zero, tiny, subnormal, huge, and ties of rounding among them.
inline std::vector<float> activations(int64_t tokens, int64_t cols, Random& random) {
    std::vector<float> x(static_cast<size_t>(tokens * cols));
    for (size_t i = 0; i < x.size(); ++i) {
        const size_t kind = i / 32 % 11;
        const float factor = kind == 3   ? 0.0f
                             : kind == 5 ? 1e-38f
                             : kind == 7 ? 1e-42f
                             : kind == 9 ? 1e30f
                                         : 1.0f;
        x[i] = random.normal() * factor;
        if (kind == 10)
            x[i] =
                i % 32 == 0 ? 127.0f : static_cast<float>(static_cast<int>(random.bits() % 200) - 100) + 0.5f;
    }
    return x;
}

}  // namespace edgewise::testing
