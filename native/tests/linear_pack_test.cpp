// linear: packing is lossless in every layout, and quantisation of activations equals its contract on every
// ISA.
#include "linear_fixture.h"

namespace edgewise::testing {
namespace {

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

}  // namespace
}  // namespace edgewise::testing

int main() {
    using namespace edgewise;
    using namespace edgewise::testing;
    Random random;
    for (Layout layout : kLayouts) {
        for (Format format : kQuantized) test_packing(format, layout, random);
        for (Format format : kFloats) test_packing(format, layout, random);
    }
    test_bad_shapes();
    test_quantize_contract();
    for (const std::string& isa : available_isas())
        test_quantize(kernels_for(isa).quantize, isa.c_str(), random);
    return report("linear packing");
}
