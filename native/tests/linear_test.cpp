// linear: packing is lossless, quantisation and both products equal their contract, and AVX2 equals generic
// bit for bit.
//
// The generic code is itself held against a direct evaluation of the contract on unpacked codes.
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "blocks.h"
#include "check.h"
#include "dispatch.h"

namespace {

using namespace edgewise;

constexpr Format kQuantized[] = {Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1,
                                 Format::Q8_0, Format::Q4_K, Format::Q5_K, Format::Q6_K};
constexpr Format kFloats[] = {Format::F32, Format::F16, Format::BF16};
constexpr Layout kLayouts[] = {Layout::R4, Layout::R8, Layout::R16};
constexpr uint32_t kSeed = 20240817;

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
std::vector<uint8_t> random_source(Format format, int64_t rows, int64_t cols, Random& random) {
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

Matrix random_matrix(Format format, Layout layout, int64_t rows, int64_t cols, Random& random) {
    Matrix m;
    m.source = random_source(format, rows, cols, random);
    const int64_t bytes = packed_bytes(format, layout, rows, cols);
    m.packed = std::make_unique<Guarded<uint8_t>>(bytes);
    pack(format, layout, rows, cols, m.source.data(), m.packed->data());
    m.view = {format, layout, rows, cols, m.packed->data(), bytes};
    return m;
}

std::string describe(const PackedMatrix& w, int64_t tokens) {
    return std::string(traits(w.format).name) + " R" + std::to_string(w.interleave()) + " [" +
           std::to_string(w.rows) + ", " + std::to_string(w.cols) + "] T=" + std::to_string(tokens) +
           " seed " + std::to_string(kSeed);
}

bool same(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void check_equal(const float* expected, const float* actual, int64_t count, const std::string& what) {
    for (int64_t i = 0; i < count; ++i) {
        if (same(expected[i], actual[i])) continue;
        return CHECK(false, what + ": cell " + std::to_string(i) + " is " + std::to_string(actual[i]) +
                                ", not " + std::to_string(expected[i]));
    }
}

// ---- packing ----

void test_packing(Format format, Layout layout, Random& random) {
    for (int64_t rows : {1, 3, 4, 8, 17, 33}) {
        const int64_t cols = traits(format).cols == 1 ? 37 : 3 * traits(format).cols;
        const Matrix m = random_matrix(format, layout, rows, cols, random);
        Guarded<uint8_t> back(static_cast<int64_t>(m.source.size()));
        unpack(m.view, back.data());
        CHECK(std::equal(m.source.begin(), m.source.end(), back.data()),
              "pack and unpack: " + describe(m.view, 0));
        const int64_t padded_rows = m.view.row_blocks() * m.view.interleave();
        CHECK(m.view.bytes < padded_rows * source_row_bytes(format, cols) + 64,
              "packed size: " + describe(m.view, 0));
    }
}

void test_bad_shapes() {
    const auto throws = [](Format format, int64_t rows, int64_t cols) {
        try {
            packed_bytes(format, Layout::R8, rows, cols);
        } catch (const std::invalid_argument&) {
            return true;
        }
        return false;
    };
    CHECK(throws(Format::Q4_0, 8, 33), "33 columns of Q4_0");
    CHECK(throws(Format::Q4_K, 8, 32), "32 columns of Q4_K");
    CHECK(throws(Format::F32, 8, 0), "no columns");
    CHECK(throws(Format::F32, -1, 8), "negative rows");
    CHECK(throws(static_cast<Format>(99), 8, 8), "unknown format");
}

// ---- quantisation ----

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
std::vector<float> activations(int64_t tokens, int64_t cols, Random& random) {
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

void check_quantized(const Activations& a, const Activations& b, const std::string& what) {
    const int64_t cells = a.view.tokens * a.view.groups;
    CHECK(std::equal(a.view.codes, a.view.codes + cells * 32, b.view.codes), what + ": codes");
    CHECK(std::equal(a.view.sums, a.view.sums + cells * 2, b.view.sums), what + ": sums");
    check_equal(a.view.scales, b.view.scales, cells, what + ": scales");
}

void test_quantize(QuantizeFn quantize, const char* isa, Random& random) {
    for (int64_t tokens : {1, 2, 3, 7, 8, 9, 63, 64, 65, 130}) {
        for (int64_t cols : {1, 31, 32, 37, 256, 288, 576}) {
            std::vector<float> x = activations(tokens, cols, random);
            if (x.size() > 40) x[33] = std::numeric_limits<float>::quiet_NaN();
            if (x.size() > 400) x[390] = -std::numeric_limits<float>::infinity();
            Activations expected(tokens, cols), actual(tokens, cols);
            generic::quantize(x.data(), cols, 0, tokens, expected.view);
            const int64_t cut = tokens / 3;
            quantize(x.data(), cols, cut, tokens, actual.view);
            quantize(x.data(), cols, 0, cut, actual.view);
            check_quantized(expected, actual,
                            std::string("quantize ") + isa + " T=" + std::to_string(tokens) +
                                " K=" + std::to_string(cols));
        }
    }
}

void test_quantize_contract() {
    std::vector<float> x(64, 0.0f);
    for (int k = 0; k < 32; ++k) x[static_cast<size_t>(k)] = static_cast<float>(k - 16) / 4.0f;
    x[0] = -127.0f;
    x[1] = 2.5f, x[2] = 3.5f, x[3] = -0.5f;
    x[40] = std::numeric_limits<float>::infinity();
    Activations a(1, 64);
    generic::quantize(x.data(), 64, 0, 1, a.view);
    CHECK(a.view.codes[0] == -127 && a.view.codes[1] == 2 && a.view.codes[2] == 4 && a.view.codes[3] == 0,
          "ties round to even");
    CHECK(a.view.scales[0] == 1.0f && std::isnan(a.view.scales[1]) && a.view.scales[2] == 0.0f, "scales");
    int sum = 0;
    for (int k = 16; k < 32; ++k) sum += a.view.codes[k];
    CHECK(a.view.sums[1] == sum && a.view.sums[2] == 0, "sums");
}

// ---- products ----

// One output straight from the contract, by unpacked codes and scales.
float contract(const Matrix& m, int64_t row, const QuantizedRows& x, int64_t token) {
    const FormatTraits& t = traits(m.view.format);
    const int64_t n = std::min(kTokenBlock, x.tokens - token / kTokenBlock * kTokenBlock);
    const int64_t first = token / kTokenBlock * kTokenBlock * x.groups + token % kTokenBlock;
    float acc = 0.0f;
    for (int64_t g = 0; g < m.view.cols / 32; ++g) {
        RowBlock block;
        const int64_t b = g * 32 / t.cols, in_block = g % (t.cols / 32), cell = first + g * n;
        read_source_block(m.view.format,
                          m.source.data() + row * source_row_bytes(m.view.format, m.view.cols) + b * t.bytes,
                          block);
        int32_t i = 0, sum = 0;
        for (int64_t k = 0; k < 32; ++k) {
            const int64_t at = in_block * 32 + k;
            const int code = t.bits == 8 ? static_cast<int8_t>(block.codes[at]) : block.codes[at] - t.offset;
            const int sub = m.view.format == Format::Q6_K ? static_cast<int8_t>(block.scales[at / 16]) : 1;
            i += code * sub * x.codes[cell * 32 + k];
            sum += x.codes[cell * 32 + k];
        }
        const float dw = group_scale(m.view.format, block, in_block);
        acc = std::fma(static_cast<float>(i), dw * x.scales[cell], acc);
        if (t.minimum)
            acc = std::fma(group_minimum(m.view.format, block, in_block),
                           x.scales[cell] * static_cast<float>(sum), acc);
    }
    return acc;
}

// Runs rows [first, last) in blocks and tokens from `token_begin` on; all else of y must keep its mark.
struct Range {
    int64_t token_begin, block_begin, block_end;
};

template <class Run>
void check_range(const Matrix& m, int64_t tokens, const Range& range, const std::vector<float>& expected,
                 Run run, const std::string& what) {
    const int64_t lanes = m.view.interleave();
    const int64_t row_begin = range.block_begin * lanes,
                  row_end = std::min(range.block_end * lanes, m.view.rows);
    const int64_t stride = row_end - row_begin + 3, count = tokens - range.token_begin;
    Guarded<float> y(count * stride + 1);
    std::fill_n(y.data(), y.size(), -77.0f);
    run(range, y.data() + 1, stride);
    for (int64_t t = 0; t < count; ++t) {
        const float* row = expected.data() + (range.token_begin + t) * m.view.rows + row_begin;
        check_equal(row, y.data() + 1 + t * stride, row_end - row_begin,
                    what + " token " + std::to_string(t));
        for (int64_t i = row_end - row_begin; i < stride && t * stride + i + 1 < y.size(); ++i)
            CHECK(y.data()[1 + t * stride + i] == -77.0f, what + ": wrote beyond the rows");
    }
}

std::vector<Range> ranges(const PackedMatrix& w, int64_t tokens) {
    std::vector<Range> all = {{0, 0, w.row_blocks()}};
    if (w.row_blocks() > 1) all.push_back({0, 1, w.row_blocks()});
    if (tokens > kTokenBlock) all.push_back({kTokenBlock, 0, 1});
    return all;
}

void test_quantized(const Kernels& kernels, Format format, Layout layout, int64_t rows, int64_t cols,
                    int64_t tokens, bool poison, Random& random) {
    const Matrix m = random_matrix(format, layout, rows, cols, random);
    std::vector<float> x = activations(tokens, cols, random);
    if (poison) x[x.size() / 2] = std::numeric_limits<float>::infinity();
    Activations a(tokens, cols);
    generic::quantize(x.data(), cols, 0, tokens, a.view);
    std::vector<float> expected(static_cast<size_t>(tokens * rows));
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t row = 0; row < rows; ++row)
            expected[static_cast<size_t>(t * rows + row)] = contract(m, row, a.view, t);
    for (const Range& r : ranges(m.view, tokens))
        check_range(
            m, tokens, r, expected,
            [&](const Range& range, float* y, int64_t stride) {
                kernels.linear_quantized(m.view, a.view, range.token_begin, tokens, range.block_begin,
                                         range.block_end, y, stride);
            },
            std::string("linear_quantized ") + kernels.isa + " " + describe(m.view, tokens));
}

void test_float(const Kernels& kernels, Format format, Layout layout, int64_t rows, int64_t cols,
                int64_t tokens, Random& random) {
    const Matrix m = random_matrix(format, layout, rows, cols, random);
    std::vector<float> x = activations(tokens, cols, random);
    if (x.size() > 300) x[290] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> expected, row_values(static_cast<size_t>(cols));
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t row = 0; row < rows; ++row) {
            unpack_row(m.view, row, row_values.data());
            float acc = 0.0f;
            for (int64_t k = 0; k < cols; ++k)
                acc = std::fma(row_values[static_cast<size_t>(k)], x[static_cast<size_t>(t * cols + k)], acc);
            expected.push_back(acc);
        }
    }
    for (const Range& r : ranges(m.view, 0))
        check_range(
            m, tokens, r, expected,
            [&](const Range& range, float* y, int64_t stride) {
                kernels.linear_float(m.view, x.data(), cols, tokens, range.block_begin, range.block_end, y,
                                     stride);
            },
            std::string("linear_float ") + kernels.isa + " " + describe(m.view, tokens));
}

void test_products(const Kernels& kernels, Layout layout, Random& random) {
    for (int64_t tokens : {1, 2, 3, 5, 8, 63, 64, 65, 130}) {
        for (int64_t rows : {1, 8, 13, 40}) {
            for (Format format : kQuantized)
                for (int64_t blocks : {1, 3, 9})
                    test_quantized(kernels, format, layout, rows, blocks * traits(format).cols, tokens,
                                   blocks == 3, random);
            for (Format format : kFloats)
                for (int64_t cols : {1, 31, 257})
                    test_float(kernels, format, layout, rows, cols, tokens, random);
        }
    }
}

}  // namespace

int main() {
    Random random;
    for (Format format : kQuantized)
        for (Layout layout : kLayouts) test_packing(format, layout, random);
    for (Format format : kFloats)
        for (Layout layout : kLayouts) test_packing(format, layout, random);
    test_bad_shapes();
    test_quantize_contract();
    for (Layout layout : kLayouts) test_products(generic_kernels(), layout, random);
    for (const std::string& isa : available_isas()) {
        const Kernels& kernels = kernels_for(isa);
        test_quantize(kernels.quantize, kernels.isa, random);
        test_products(kernels, kernels.layout, random);
    }
    return edgewise::testing::report("linear");
}
