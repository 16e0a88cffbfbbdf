// Programs over every weight format: the same bits for any threads, instruction set and cut of the rows.
// Small enough to run under the sanitizers; tests/kernels/test_program.py holds the comparison with NumPy.
#include "program.h"

#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "blocks.h"
#include "check.h"

using namespace edgewise;

namespace {

constexpr int64_t kVocab = 43, kEmbed = 256, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kHidden = 512,
                  kLayers = 2;
constexpr int64_t kTokens = 290;  // two partitions of attention
constexpr int64_t kTableWidth = 10;

struct Weights {
    Format format;
    std::mt19937 engine{17};
    std::deque<Mapping> memory;

    explicit Weights(Format f) : format(f) {}

    // Random codes under scales of about 0.01 wherever the format keeps an f16 or f32.
    PackedMatrix matrix(int64_t rows, int64_t cols) {
        std::vector<uint8_t> source(static_cast<size_t>(rows * source_row_bytes(format, cols)));
        for (uint8_t& byte : source) byte = static_cast<uint8_t>(engine());
        tame(source);
        int64_t bytes = packed_bytes(format, Layout::R8, rows, cols);
        memory.emplace_back(bytes);
        pack(format, Layout::R8, rows, cols, source.data(), memory.back().data());
        return {format, Layout::R8, rows, cols, memory.back().data(), bytes};
    }

    std::vector<float> vector(int64_t size) {
        std::normal_distribution<float> normal(1.0f, 0.2f);
        std::vector<float> values(static_cast<size_t>(size));
        for (float& v : values) v = normal(engine);
        return values;
    }

  private:
    static void put_half(uint8_t* at, float value) {
        uint16_t half = float_to_half(value);
        std::memcpy(at, &half, sizeof half);
    }

    void tame(std::vector<uint8_t>& source) {
        std::normal_distribution<float> normal(0.0f, 0.05f);
        const FormatTraits& t = traits(format);
        for (size_t at = 0; at < source.size(); at += static_cast<size_t>(t.bytes)) {
            uint8_t* block = source.data() + at;
            float value = normal(engine);
            if (format == Format::F32) {
                std::memcpy(block, &value, sizeof value);
            } else if (format == Format::BF16) {
                uint32_t bits = std::bit_cast<uint32_t>(value) >> 16;
                std::memcpy(block, &bits, 2);
            } else if (format == Format::F16) {
                put_half(block, value);
            } else if (format == Format::Q6_K) {
                put_half(block + t.bytes - 2, 1e-4f);
            } else {
                put_half(block, 5e-4f + 1e-3f * std::abs(value));
                if (t.minimum) put_half(block + 2, -0.005f);
            }
        }
    }
};

struct Model {
    Weights weights;
    KvCache cache{std::vector<KvShape>(kLayers, {kKvHeads, kHeadDim, kHeadDim}), 32};
    Program program;

    Model(Pool& pool, const std::string& isa, Format format)
        : weights(format), program(pool, kernels_for(isa), 512, 512, cache) {
        Norm norm{NormKind::Rms, weights.vector(kEmbed), {}, 1e-5f};
        PackedMatrix embed = weights.matrix(kVocab, kEmbed);
        int64_t x = program.buffer(kEmbed), q = program.buffer(kHeads * kHeadDim),
                k = program.buffer(kKvHeads * kHeadDim), v = program.buffer(kKvHeads * kHeadDim),
                hidden = program.buffer(kHidden), mixed = program.buffer(kEmbed);
        std::vector<double> inv_freq(kHeadDim / 2);
        for (size_t i = 0; i < inv_freq.size(); i++)
            inv_freq[i] = std::pow(100.0, -static_cast<double>(i) / 8.0);
        int64_t table = program.rope_table(inv_freq, 1.0f);
        program.embed(embed, x, 20.0f);
        for (int64_t layer = 0; layer < kLayers; layer++) {
            program.linear(
                x,
                {{weights.matrix(kHeads * kHeadDim, kEmbed), weights.vector(kHeads * kHeadDim), q, 0},
                 {weights.matrix(kKvHeads * kHeadDim, kEmbed), {}, k, 0},
                 {weights.matrix(kKvHeads * kHeadDim, kEmbed), {}, v, 0}},
                norm, false, 1.0f);
            AttentionOptions o;
            o.layer = layer;
            o.q = q, o.k = k, o.v = v;
            // Heads of 16 fill the first 64 columns of nothing else: a width of its own, widened by the next
            // product.
            o.dest = program.buffer(kHeads * kHeadDim);
            o.shape = {
                kHeads, kKvHeads, kHeadDim, kHeadDim, layer ? AttentionKind::Sliding : AttentionKind::Full,
                100};
            o.scale = 0.25f;
            o.rope_table = table;
            program.attention(o);
            // The _K formats need columns in multiples of 256, so the attention's 64 go through a plain F32
            // matrix.
            program.linear(o.dest, {{plain(kEmbed, kHeads * kHeadDim), {}, mixed, 0}}, std::nullopt, false,
                           1.0f);
            program.linear(mixed, {{weights.matrix(kEmbed, kEmbed), {}, x, 0}}, std::nullopt, true, 1.0f);
            program.gated_mlp(x, weights.matrix(kHidden, kEmbed), weights.matrix(kHidden, kEmbed),
                              Activation::Silu, hidden, norm, {}, {});
            program.linear(hidden, {{weights.matrix(kEmbed, kHidden), {}, x, 0}}, std::nullopt, true, 0.5f);
        }
        int64_t wanted = program.output_buffer(kEmbed);
        program.gather_outputs(x, wanted);
        program.head(wanted, embed, norm, {}, 1.0f, 30.0f);
    }

    PackedMatrix plain(int64_t rows, int64_t cols) {
        Format format = std::exchange(weights.format, Format::F32);
        PackedMatrix m = weights.matrix(rows, cols);
        weights.format = format;
        return m;
    }
};

std::vector<int32_t> tokens() {
    std::mt19937 engine(3);
    std::vector<int32_t> ids(kTokens);
    for (int32_t& id : ids) id = static_cast<int32_t>(engine() % kVocab);
    return ids;
}

// Logits of all rows of one sequence, run in steps of `chunk` rows.
std::vector<float> run(Model& model, int64_t chunk) {
    std::vector<int32_t> ids = tokens(), positions(kTokens), rows(kTokens), table(kTableWidth);
    std::iota(positions.begin(), positions.end(), 0);
    std::iota(rows.begin(), rows.end(), 0);
    for (int32_t i = 0; i < kTableWidth; i++) table[static_cast<size_t>(i)] = (i * 7 + 3) % 32;
    std::vector<float> logits;
    for (int64_t begin = 0; begin < kTokens; begin += chunk) {
        int64_t n = std::min(chunk, kTokens - begin);
        int32_t starts[] = {0, static_cast<int32_t>(n)}, context = static_cast<int32_t>(begin);
        Step step;
        step.rows = step.outputs = n;
        step.sequences = 1;
        step.table_width = kTableWidth;
        step.token_ids = ids.data() + begin;
        step.positions = positions.data() + begin;
        step.row_starts = starts;
        step.context_lens = &context;
        step.block_tables = table.data();
        step.output_rows = rows.data();
        CHECK(model.program.run(step), "a step that nobody cancelled finishes");
        logits.insert(logits.end(), model.program.logits(), model.program.logits() + n * kVocab);
    }
    return logits;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void same_bits_for_every_cut(Format format) {
    Pool one(1);
    Model reference(one, "generic", format);
    std::vector<float> want = run(reference, kTokens);
    float largest = 0.0f;
    for (float v : want) largest = std::max(largest, std::abs(v));
    CHECK(largest > 0.1f && largest < 30.0f,
          std::string("logits of a sensible size, not ") + std::to_string(largest));
    for (const std::string& isa : available_isas()) {
        for (int threads : {1, 2, 3}) {
            Pool pool(threads);
            Model model(pool, isa, format);
            for (int64_t chunk : {kTokens, int64_t{100}, int64_t{17}}) {
                if (isa == "generic" && (chunk != 100 || threads != 2))
                    continue;  // slow, and cut like any other
                CHECK(same(run(model, chunk), want), std::string(traits(format).name) + " " + isa + ", " +
                                                         std::to_string(threads) + " threads, chunks of " +
                                                         std::to_string(chunk));
            }
        }
    }
}

void cancels() {
    Pool pool(2);
    Model model(pool, "auto", Format::Q8_0);
    run(model, 64);
    std::vector<int32_t> ids = tokens(), table(kTableWidth);
    std::iota(table.begin(), table.end(), 0);
    int32_t starts[] = {0, kTokens}, context = 0;
    Step step;
    step.rows = kTokens;
    step.sequences = 1;
    step.table_width = kTableWidth;
    step.token_ids = step.positions = ids.data();
    step.row_starts = starts;
    step.context_lens = &context;
    step.block_tables = table.data();
    model.program.cancel();
    CHECK(!model.program.run(step), "a cancel between steps costs the next");
    CHECK(model.program.run(step), "and no other");
    std::atomic<bool> done = false;
    std::thread canceller([&] {
        while (!done) model.program.cancel();
    });
    CHECK(!model.program.run(step) || !model.program.run(step),
          "a step that is cancelled all the time ends early");
    done = true;
    canceller.join();
}

}  // namespace

int main() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    for (Format format : {Format::F16, Format::Q4_1, Format::Q6_K}) same_bits_for_every_cut(format);
#else
    for (const FormatTraits& format : kFormats) same_bits_for_every_cut(format.format);
#endif
    cancels();
    return edgewise::testing::report("program");
}
