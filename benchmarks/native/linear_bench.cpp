// linear: GOP/s and GB/s of every weight format beside what the machine can do, on 1 and 2 threads.
//
//   linear_bench [--formats Q4_1,Q5_0] [--tokens 1,8,512] [--seconds 0.3] [--isa auto]
//
// The matrices of a shape are copies that together exceed the caches, so that few tokens stream from memory
// as a model does. Threads take chunks of row blocks from a counter. Samples of one and two threads
// alternate; the median and the best are shown, and the share of the machine's read bandwidth.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "dispatch.h"
#include "formats.h"

namespace {

using namespace edgewise;
using Clock = std::chrono::steady_clock;

constexpr int64_t kStreamBytes = int64_t{192} << 20;  // several times the last cache

struct Shape {
    int64_t rows, cols;
};
constexpr Shape kShapes[] = {
    {1536, 576}, {4864, 896}, {8960, 1536}};  // up-projections of 135M, 0.5B and 1.5B

struct Options {
    std::vector<std::string> formats;
    std::vector<int64_t> tokens = {1, 2, 4, 8, 16, 64, 512};
    double seconds = 0.3;
    std::string isa = "auto";
};

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class T>
T* allocate(int64_t bytes) {
    return static_cast<T*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)));
}

// Runs body(thread) on `threads` threads and returns the wall time in seconds.
double timed(int threads, const std::function<void(int)>& body) {
    std::atomic<int> ready{0};
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i)
        others.emplace_back([&, i] {
            ready.fetch_add(1);
            while (ready.load() < threads) std::this_thread::yield();
            body(i);
        });
    while (ready.load() < threads - 1) std::this_thread::yield();
    const Clock::time_point start = Clock::now();
    ready.fetch_add(1);
    body(0);
    for (std::thread& t : others) t.join();
    return seconds_since(start);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// ---- what the machine can do ----

double read_gb_per_s(const Kernels& kernels, int threads, const uint8_t* data) {
    const int64_t share = kStreamBytes / threads / 256 * 256;
    std::atomic<uint64_t> sink{0};
    const double s =
        timed(threads, [&](int thread) { sink += kernels.read_loop(data + thread * share, share); });
    return static_cast<double>(share * threads) / s / 1e9;
}

double int8_gop_per_s(const Kernels& kernels, int threads) {
    std::atomic<int64_t> operations{0};
    const double s = timed(threads, [&](int) { operations += kernels.multiply_loop(1000000); });
    return static_cast<double>(operations.load()) / s / 1e9;
}

// Medians for 1 and 2 threads.
struct Machine {
    double read[2], int8[2];

    explicit Machine(const Kernels& kernels) {
        auto* data = allocate<uint8_t>(kStreamBytes);
        std::fill_n(data, kStreamBytes, uint8_t{1});
        for (int threads : {1, 2}) {
            std::vector<double> reads, products;
            for (int i = 0; i < 9; ++i) {
                reads.push_back(read_gb_per_s(kernels, threads, data));
                products.push_back(int8_gop_per_s(kernels, threads));
            }
            read[threads - 1] = median(reads);
            int8[threads - 1] = median(products);
        }
        std::free(data);
    }
};

// ---- one matrix size ----

struct Problem {
    std::vector<PackedMatrix> matrices;
    uint8_t* memory;
    QuantizedRows quantized;
    float* x;
    float* y;
    int64_t tokens;

    ~Problem() {
        std::free(memory);
        std::free(quantized.codes);
        std::free(quantized.scales);
        std::free(quantized.sums);
        std::free(x);
        std::free(y);
    }
};

void fill_weights(Format format, uint8_t* data, int64_t bytes) {
    std::minstd_rand random(7);
    for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(random() >> 8);
    if (format == Format::F32)
        for (int64_t i = 0; i < bytes / 4; ++i)
            reinterpret_cast<float*>(data)[i] = 0.01f * static_cast<float>(i % 7);
}

void make_problem(const Kernels& kernels, Format format, Shape shape, int64_t tokens, Problem& p) {
    const int64_t bytes = packed_bytes(format, kernels.layout, shape.rows, shape.cols);
    const int64_t copies = tokens <= 8 ? std::max<int64_t>(kStreamBytes / bytes, 1) : 2;
    p.memory = allocate<uint8_t>(bytes * copies);
    fill_weights(format, p.memory, bytes);
    for (int64_t i = 0; i < copies; ++i) {
        if (i > 0) std::copy_n(p.memory, bytes, p.memory + i * bytes);
        p.matrices.push_back({format, kernels.layout, shape.rows, shape.cols, p.memory + i * bytes, bytes});
    }
    const QuantizedRowsSize size = quantized_rows_size(tokens, shape.cols);
    p.quantized = {tokens,
                   shape.cols,
                   padded_groups(shape.cols),
                   allocate<int8_t>(size.codes),
                   allocate<float>(size.scales),
                   allocate<int16_t>(size.sums)};
    p.x = allocate<float>(tokens * shape.cols * 4);
    p.y = allocate<float>(tokens * shape.rows * 4);
    p.tokens = tokens;
    for (int64_t i = 0; i < tokens * shape.cols; ++i)
        p.x[i] = static_cast<float>((i * 7919) % 1000) / 500.0f - 1.0f;
    kernels.quantize(p.x, shape.cols, 0, tokens, p.quantized);
}

// One pass over all matrices: row blocks in chunks, taken from a shared counter.
double pass_seconds(const Kernels& kernels, const Problem& p, int threads) {
    const int64_t blocks = p.matrices[0].row_blocks(), lanes = p.matrices[0].interleave();
    const int64_t chunk = std::clamp<int64_t>(blocks / (threads * 4) / kBlockUnit, 1, 4) * kBlockUnit;
    const int64_t chunks = (blocks + chunk - 1) / chunk,
                  total = chunks * static_cast<int64_t>(p.matrices.size());
    std::atomic<int64_t> next{0};
    return timed(threads, [&](int) {
        for (int64_t i = next++; i < total; i = next++) {
            const PackedMatrix& w = p.matrices[static_cast<size_t>(i / chunks)];
            const int64_t begin = i % chunks * chunk, end = std::min(begin + chunk, blocks);
            float* y = p.y + begin * lanes;
            if (is_float(w.format))
                kernels.linear_float(w, p.x, w.cols, p.tokens, begin, end, y, w.rows);
            else
                kernels.linear_quantized(w, p.quantized, 0, p.tokens, begin, end, y, w.rows);
        }
    });
}

void bench(const Kernels& kernels, Format format, Shape shape, const Options& options,
           const Machine& machine) {
    for (int64_t tokens : options.tokens) {
        Problem p;
        make_problem(kernels, format, shape, tokens, p);
        const double bytes =
            static_cast<double>(p.matrices[0].bytes) * static_cast<double>(p.matrices.size());
        const double operations = 2.0 * static_cast<double>(shape.rows * shape.cols * tokens) *
                                  static_cast<double>(p.matrices.size());
        std::vector<double> samples[2];
        const Clock::time_point start = Clock::now();
        while (samples[0].size() < 3 || seconds_since(start) < options.seconds)
            for (int threads : {1, 2}) samples[threads - 1].push_back(pass_seconds(kernels, p, threads));
        std::printf("%-5s %5ld x %-5ld T=%-4ld", traits(format).name, static_cast<long>(shape.rows),
                    static_cast<long>(shape.cols), static_cast<long>(tokens));
        for (int threads : {1, 2}) {
            const double s = median(samples[threads - 1]), gb = bytes / s / 1e9;
            const double best = *std::min_element(samples[threads - 1].begin(), samples[threads - 1].end());
            std::printf("  | %7.1f GOP/s (best %6.1f) %6.2f GB/s %3.0f%%", operations / s / 1e9,
                        operations / best / 1e9, gb, 100 * gb / machine.read[threads - 1]);
        }
        std::printf("\n");
        std::fflush(stdout);
    }
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    return parts;
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i], value = argv[i + 1];
        if (name == "--formats") options.formats = split(value);
        if (name == "--seconds") options.seconds = std::stod(value);
        if (name == "--isa") options.isa = value;
        if (name == "--tokens") {
            options.tokens.clear();
            for (const std::string& t : split(value)) options.tokens.push_back(std::stoll(t));
        }
    }
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const Kernels& kernels = kernels_for(options.isa);
    const Machine machine(kernels);
    std::printf("%s on 1 and 2 threads: reads %.1f and %.1f GB/s, int8 loop %.0f and %.0f GOP/s\n",
                kernels.isa, machine.read[0], machine.read[1], machine.int8[0], machine.int8[1]);
    for (const FormatTraits& t : kFormats) {
        if (!options.formats.empty() &&
            std::count(options.formats.begin(), options.formats.end(), t.name) == 0)
            continue;
        for (const Shape& shape : kShapes)
            if (shape.cols % t.cols == 0) bench(kernels, t.format, shape, options, machine);
    }
}
