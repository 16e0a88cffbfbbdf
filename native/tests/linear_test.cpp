// linear: the generic products equal a direct evaluation of the contract on unpacked codes, and so does every
// ISA, bit for bit, whatever the format, layout, number of tokens and range of rows.
#include "linear_fixture.h"

namespace edgewise::testing {
namespace {

std::vector<RowBlock> blocks_of(const Matrix& m, int64_t row) {
    const FormatTraits& t = traits(m.view.format);
    const uint8_t* source = m.source.data() + row * source_row_bytes(t.format, m.view.cols);
    std::vector<RowBlock> blocks(static_cast<size_t>(m.view.cols / t.cols));
    for (RowBlock& block : blocks) {
        read_source_block(t.format, source, block);
        source += t.bytes;
    }
    return blocks;
}

// One output straight from the contract, by a row's unpacked codes and scales.
float contract(Format format, const std::vector<RowBlock>& row, const QuantizedRows& x, int64_t token) {
    const FormatTraits& t = traits(format);
    const int64_t block_start = token / kTokenBlock * kTokenBlock,
                  n = std::min(kTokenBlock, x.tokens - block_start);
    float acc = 0.0f;
    for (int64_t g = 0; g < static_cast<int64_t>(row.size()) * t.cols / 32; ++g) {
        const RowBlock& block = row[static_cast<size_t>(g * 32 / t.cols)];
        const int64_t in_block = g % (t.cols / 32),
                      cell = block_start * x.groups + token % kTokenBlock + g * n;
        int32_t i = 0, sum = 0;
        for (int64_t k = 0; k < 32; ++k) {
            const int64_t at = in_block * 32 + k;
            const int code = t.bits == 8 ? static_cast<int8_t>(block.codes[at]) : block.codes[at] - t.offset;
            const int sub = format == Format::Q6_K ? static_cast<int8_t>(block.scales[at / 16]) : 1;
            i += code * sub * x.codes[cell * 32 + k];
            sum += x.codes[cell * 32 + k];
        }
        acc = std::fma(static_cast<float>(i), group_scale(format, block, in_block) * x.scales[cell], acc);
        if (t.minimum)
            acc = std::fma(group_minimum(format, block, in_block), x.scales[cell] * static_cast<float>(sum),
                           acc);
    }
    return acc;
}

// Tokens and row blocks of one call; all else of y must keep its mark.
struct Range {
    int64_t token_begin, token_end, block_begin, block_end;
};

template <class Run>
void check_range(const Matrix& m, const Range& range, const std::vector<float>& expected, Run run,
                 const std::string& what) {
    const int64_t lanes = m.view.interleave();
    const int64_t row_begin = range.block_begin * lanes,
                  row_end = std::min(range.block_end * lanes, m.view.rows);
    const int64_t stride = row_end - row_begin + 3, count = range.token_end - range.token_begin;
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

std::vector<Range> ranges(const PackedMatrix& w, int64_t tokens, bool token_ranges) {
    std::vector<Range> all = {{0, tokens, 0, w.row_blocks()}};
    if (w.row_blocks() > 1) all.push_back({0, tokens, 1, w.row_blocks()});
    if (token_ranges && tokens > kTokenBlock) all.push_back({kTokenBlock, tokens, 0, 1});
    if (token_ranges && tokens > 2) all.push_back({0, tokens - 2, 0, w.row_blocks()});
    return all;
}

void check_quantized_product(const Kernels& kernels, const Matrix& m, const std::vector<float>& x,
                             int64_t tokens) {
    const int64_t rows = m.view.rows, cols = m.view.cols;
    Activations a(tokens, cols);
    generic::quantize(x.data(), cols, 0, tokens, a.view);
    std::vector<float> expected(static_cast<size_t>(tokens * rows));
    for (int64_t row = 0; row < rows; ++row) {
        const std::vector<RowBlock> blocks = blocks_of(m, row);
        for (int64_t t = 0; t < tokens; ++t)
            expected[static_cast<size_t>(t * rows + row)] = contract(m.view.format, blocks, a.view, t);
    }
    for (const Range& r : ranges(m.view, tokens, true))
        check_range(
            m, r, expected,
            [&](const Range& range, float* y, int64_t stride) {
                kernels.linear_quantized(m.view, a.view, range.token_begin, range.token_end,
                                         range.block_begin, range.block_end, y, stride);
            },
            std::string("linear_quantized ") + kernels.isa + " " + describe(m.view, tokens));
}

void test_quantized(const Kernels& kernels, Format format, Layout layout, int64_t rows, int64_t cols,
                    int64_t tokens, bool poison, Random& random) {
    const Matrix m = random_matrix(format, layout, rows, cols, random);
    std::vector<float> x = activations(tokens, cols, random);
    if (poison) x[x.size() / 2] = std::numeric_limits<float>::infinity();
    check_quantized_product(kernels, m, x, tokens);
}

// Every code the largest or the smallest, every activation 127 or -127: the sums that 16 bits barely hold.
void test_extremes(const Kernels& kernels, Format format, Random& random) {
    const FormatTraits& t = traits(format);
    const int64_t rows = 70, cols = t.cols;
    for (uint8_t code : {0x00, 0x7f, 0x80, 0xff}) {
        std::vector<uint8_t> source = random_source(format, rows, cols, random);
        for (int64_t row = 0; row < rows; ++row) {
            RowBlock block;
            read_source_block(format, source.data() + row * t.bytes, block);
            std::fill_n(block.codes, t.cols,
                        static_cast<uint8_t>(t.bits == 8 ? code : code & ((1 << t.bits) - 1)));
            if (format == Format::Q6_K) std::fill_n(block.scales, 16, static_cast<uint8_t>(0x80));
            write_source_block(format, block, source.data() + row * t.bytes);
        }
        const Matrix m = packed_matrix(format, kernels.layout, rows, cols, std::move(source));
        for (int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
            for (float value : {1.0f, -1.0f})
                check_quantized_product(
                    kernels, m, std::vector<float>(static_cast<size_t>(tokens * cols), value), tokens);
        }
    }
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
    for (const Range& r : ranges(m.view, tokens, false))
        check_range(
            m, r, expected,
            [&](const Range& range, float* y, int64_t stride) {
                kernels.linear_float(m.view, x.data(), cols, tokens, range.block_begin, range.block_end, y,
                                     stride);
            },
            std::string("linear_float ") + kernels.isa + " " + describe(m.view, tokens));
}

void test_products(const Kernels& kernels, Layout layout, std::initializer_list<int64_t> token_counts,
                   Random& random) {
    for (int64_t tokens : token_counts) {
        for (int64_t rows : {1, 13, 40, 93}) {
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
}  // namespace edgewise::testing

int main() {
    using namespace edgewise;
    using namespace edgewise::testing;
    Random random;
    for (Layout layout : kLayouts) test_products(generic_kernels(), layout, {1, 3, 65}, random);
    for (const std::string& isa : available_isas())
        if (isa != "generic")
            test_products(kernels_for(isa), kernels_for(isa).layout,
                          {1, 2, 3, 4, 5, 6, 7, 8, 9, 63, 64, 65, 130}, random);
    for (const std::string& isa : available_isas())
        for (Format format : kQuantized) test_extremes(kernels_for(isa), format, random);
    return report("linear");
}
