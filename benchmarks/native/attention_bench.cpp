// attention: decode in GB/s of cache read, prefill in GFLOP/s, each beside what the same run measures as the
// machine's limit.
//
//   attention_bench [--context 8192] [--samples 7] [--threads 1,2] [--isa auto]
//
// Decode: one query row a layer, layers enough to exceed the caches; tasks are partitions of kv heads.
// Prefill: 512 rows that end at 4,096 keys, in tiles of 96 query vectors. Medians; samples of a shape
// alternate with samples of the limit.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "dispatch.h"
#include "memory.h"
#include "numeric.h"
#include "pool.h"

namespace {

using namespace edgewise;
using Clock = std::chrono::steady_clock;

constexpr int64_t kStreamBytes = int64_t{192} << 20;  // several times the last cache
constexpr int64_t kPrefillRows = 512, kPrefillKeys = 4096, kTileVectors = 96;

struct Model {
    const char* name;
    int64_t kv_heads, group, dim;
};
constexpr Model kModels[] = {{"SmolLM2-135M", 3, 3, 64},
                             {"Qwen2.5-0.5B", 2, 7, 64},
                             {"Qwen2.5-1.5B", 2, 6, 128},
                             {"Gemma3-270M", 1, 4, 256},
                             {"one head a group", 8, 1, 64}};

struct Options {
    int64_t context = 8192, samples = 7;
    std::vector<int> threads = {1, 2};
    std::string isa = "auto";
};

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// --- the limits --------------------------------------------------------------------------------------------

#if defined(__x86_64__)
typedef float Lanes __attribute__((vector_size(32)));

// Twelve chains of 8-wide multiply-adds: 2 of them can start in each cycle, each takes 4.
__attribute__((target("avx2,fma"), optimize("fp-contract=fast"))) float multiply_add_loop(
    int64_t iterations) {
    Lanes x[12], a = {}, b = {};
    a += 0.999f;
    b += 0.001f;
    for (int j = 0; j < 12; ++j) x[j] = b + static_cast<float>(j);
    for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; ++j) x[j] = x[j] * a + b;
    }
    for (int j = 1; j < 12; ++j) x[0] += x[j];
    return x[0][0];
}
#else
float multiply_add_loop(int64_t) { return 0.0f; }
#endif

double multiply_add_gflops(Pool& pool) {
    constexpr int64_t kIterations = 2'000'000;
    float sums[kMaxThreads] = {};
    const Clock::time_point start = Clock::now();
    pool.run([&](Team&, int thread) { sums[thread] = multiply_add_loop(kIterations); });
    const double elapsed = seconds_since(start);
    if (sums[0] == 1.0f) std::printf("\n");  // keeps the loop alive
    return static_cast<double>(kIterations * 12 * 8 * 2 * pool.threads()) / elapsed / 1e9;
}

// --- the kernels -------------------------------------------------------------------------------------------

// Layers of a cache whose blocks are in order, filled with finite numbers.
struct Caches {
    Mapping memory;
    std::vector<KvLayer> layers;
    std::vector<int32_t> table;

    Caches(const Model& model, int64_t keys, int64_t least_bytes) : memory(size(model, keys, least_bytes)) {
        memory.advise_huge_pages(0, memory.bytes());
        std::mt19937 random(1);
        auto* halves = reinterpret_cast<uint16_t*>(memory.data());
        for (int64_t i = 0; i < memory.bytes() / 2; ++i)
            halves[i] = static_cast<uint16_t>((random() & 0x83ff) | 0x3000);
        const int64_t cells = model.kv_heads * model.dim * keys;
        for (int64_t at = 0; (at + 2 * cells) * 2 <= memory.bytes(); at += 2 * cells) {
            layers.push_back({halves + at, halves + at + cells, model.kv_heads, model.dim, model.dim});
        }
        for (int64_t i = 0; i < keys / kKvBlock; ++i) table.push_back(static_cast<int32_t>(i));
    }

    static int64_t size(const Model& model, int64_t keys, int64_t least_bytes) {
        const int64_t layer = model.kv_heads * model.dim * keys * 4;
        return (least_bytes + layer - 1) / layer * layer;
    }
};

// What a thread needs to run one tile.
struct Workspace {
    std::vector<float> memory, max, sum, acc, run_max, run_sum, run_acc;
    float* scratch;

    Workspace(const Model& model, int64_t vectors)
        : memory(static_cast<size_t>(attention_scratch_floats(model.group, model.dim, model.dim) + 16)),
          max(static_cast<size_t>(vectors)),
          sum(max),
          acc(static_cast<size_t>(vectors * model.dim)),
          run_max(max),
          run_sum(max),
          run_acc(acc) {
        scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    }

    void attach(AttentionArgs& args) {
        args.max = max.data();
        args.sum = sum.data();
        args.acc = acc.data();
        args.scratch = scratch;
    }
};

struct Bench {
    const Kernels& kernels;
    const Model& model;
    std::vector<float> q;
    std::vector<Workspace> workspaces;

    Bench(const Kernels& k, const Model& m, int threads) : kernels(k), model(m) {
        std::mt19937 random(2);
        std::normal_distribution<float> normal;
        q.resize(static_cast<size_t>(kPrefillRows * model.group * model.kv_heads * model.dim));
        for (float& x : q) x = normal(random);
        for (int i = 0; i < threads; ++i) workspaces.emplace_back(model, kMaxQueryRows * model.group);
    }

    AttentionArgs arguments(const Caches& caches, const KvLayer& layer, int64_t kv_head, int64_t row) const {
        AttentionArgs args;
        args.kv = layer;
        args.block_table = caches.table.data();
        args.kv_head = kv_head;
        args.q_stride = model.kv_heads * model.group * model.dim;
        args.q = q.data() + row * args.q_stride + kv_head * model.group * model.dim;
        args.group = model.group;
        args.scale = 0.125f;
        return args;
    }

    double decode_gb_per_s(Pool& pool, const Caches& caches, int64_t context) {
        const int64_t partitions = context / kPartition, heads = model.kv_heads;
        const int64_t tasks = static_cast<int64_t>(caches.layers.size()) * heads * partitions;
        const Clock::time_point start = Clock::now();
        pool.run([&](Team& team, int thread) {
            team.for_each(tasks, [&](int64_t i) {
                const KvLayer& layer = caches.layers[static_cast<size_t>(i / (heads * partitions))];
                AttentionArgs args = arguments(caches, layer, i / partitions % heads, 0);
                workspaces[static_cast<size_t>(thread)].attach(args);
                args.rows = 1;
                args.first_index = context - 1;
                args.partition = i % partitions;
                kernels.attention(args);
            });
        });
        return static_cast<double>(tasks * kPartition * model.dim * 4) / seconds_since(start) / 1e9;
    }

    double prefill_gflops(Pool& pool, const Caches& caches) {
        const int64_t rows =
            std::min<int64_t>(kMaxQueryRows, std::max<int64_t>(1, kTileVectors / model.group));
        const int64_t tiles = (kPrefillRows + rows - 1) / rows, first = kPrefillKeys - kPrefillRows;
        const Clock::time_point start = Clock::now();
        pool.run([&](Team& team, int thread) {
            team.for_each(tiles * model.kv_heads, [&](int64_t i) {
                const int64_t row = i % tiles * rows;
                AttentionArgs args = arguments(caches, caches.layers[0], i / tiles, row);
                args.rows = std::min(rows, kPrefillRows - row);
                args.first_index = first + row;
                walk(args, workspaces[static_cast<size_t>(thread)]);
            });
        });
        const double keys =
            static_cast<double>(kPrefillRows) * (static_cast<double>(first) + (kPrefillRows + 1) / 2.0);
        return 4.0 * static_cast<double>(model.dim * model.group * model.kv_heads) * keys /
               seconds_since(start) / 1e9;
    }

    void walk(AttentionArgs& args, Workspace& work) const {
        const int64_t n = args.rows * args.group;
        work.attach(args);
        std::fill(work.run_max.begin(), work.run_max.end(), -std::numeric_limits<float>::infinity());
        std::fill(work.run_sum.begin(), work.run_sum.end(), 0.0f);
        std::fill(work.run_acc.begin(), work.run_acc.end(), 0.0f);
        for (args.partition = 0; args.partition * kPartition < args.first_index + args.rows;
             ++args.partition) {
            kernels.attention(args);
            kernels.attention_fold(n, model.dim, args.max, args.sum, args.acc, work.run_max.data(),
                                   work.run_sum.data(), work.run_acc.data());
        }
    }
};

void print(const char* figure, const Model& model, int threads, const std::vector<double>& values,
           const std::vector<double>& limits, const char* unit) {
    const double value = median(values), limit = median(limits);
    std::printf("%-8s %-17s G %lld D %-4lld %d threads  %7.1f %s (%.1f-%.1f)  %3.0f %% of %.1f\n", figure,
                model.name, static_cast<long long>(model.group), static_cast<long long>(model.dim), threads,
                value, unit, *std::min_element(values.begin(), values.end()),
                *std::max_element(values.begin(), values.end()), 100.0 * value / limit, limit);
    std::fflush(stdout);
}

void measure(const Options& options, const Model& model, int threads) {
    const Kernels& kernels = kernels_for(options.isa);
    Pool pool(threads);
    Bench bench(kernels, model, threads);
    std::vector<double> decode, read, decode_flops, prefill, peak;
    {
        const Caches caches(model, options.context, kStreamBytes);
        for (int64_t i = 0; i <= options.samples; ++i) {
            const double gb = bench.decode_gb_per_s(pool, caches, options.context);
            const double limit = read_bandwidth(pool, kernels, kStreamBytes, 0.05);
            if (i == 0) continue;  // warm-up
            decode.push_back(gb);
            read.push_back(limit);
            decode_flops.push_back(gb * static_cast<double>(model.group) * 2.0 / 2.0);
        }
    }
    const Caches caches(model, kPrefillKeys, 0 + model.kv_heads * model.dim * kPrefillKeys * 4);
    for (int64_t i = 0; i <= options.samples; ++i) {
        const double gflops = bench.prefill_gflops(pool, caches), limit = multiply_add_gflops(pool);
        if (i == 0) continue;
        prefill.push_back(gflops);
        peak.push_back(limit);
    }
    print("decode", model, threads, decode, read, "GB/s");
    print("", model, threads, decode_flops, peak, "GFLOP/s");
    print("prefill", model, threads, prefill, peak, "GFLOP/s");
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i], value = argv[i + 1];
        if (name == "--context") options.context = std::stoll(value) / kPartition * kPartition;
        if (name == "--samples") options.samples = std::stoll(value);
        if (name == "--isa") options.isa = value;
        if (name == "--threads") {
            options.threads.clear();
            std::stringstream list(value);
            for (std::string part; std::getline(list, part, ',');) options.threads.push_back(std::stoi(part));
        }
    }
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    for (const Model& model : kModels) {
        for (int threads : options.threads) measure(options, model, threads);
    }
}
