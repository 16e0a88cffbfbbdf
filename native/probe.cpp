#include "probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "dispatch.h"
#include "memory.h"
#include "pool.h"

namespace edgewise {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kReadChunk = int64_t{1} << 20;  // what a thread reads at a time
constexpr int64_t kLoopIterations =
    1 << 18;  // of multiply_loop between two looks at the clock: well below 1 ms

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_seconds(double seconds) {
    if (!(seconds > 0.0)) throw std::invalid_argument("seconds must be positive");
}

}  // namespace

double read_bandwidth(Pool& pool, const Kernels& kernels, int64_t bytes, double seconds) {
    check_seconds(seconds);
    if (bytes < kReadChunk) throw std::invalid_argument("bytes must be at least 2^20");
    int64_t chunks = bytes / kReadChunk;
    Mapping memory(chunks * kReadChunk);
    memory.advise_huge_pages(0, memory.bytes());
    std::atomic<uint64_t> sink = 0;  // keeps the reads alive
    auto pass = [&](auto&& work) {
        pool.run([&](Team& team, int) {
            team.for_each(chunks, [&](int64_t i) { work(memory.data() + i * kReadChunk); });
        });
    };
    auto read = [&](uint8_t* chunk) { sink += kernels.read_loop(chunk, kReadChunk); };
    pass([](uint8_t* chunk) { std::memset(chunk, 1, kReadChunk); });
    pass(read);
    int64_t passes = 0;
    Clock::time_point start = Clock::now();
    do {
        pass(read);
        passes++;
    } while (seconds_since(start) < seconds);
    return static_cast<double>(passes * memory.bytes()) / seconds_since(start) / 1e9;
}

double int8_peak(Pool& pool, const Kernels& kernels, double seconds) {
    check_seconds(seconds);
    std::atomic<int64_t> operations = 0;
    Clock::time_point start = Clock::now();
    pool.run([&](Team& team, int) {
        while (seconds_since(start) < seconds) operations += kernels.multiply_loop(kLoopIterations);
        team.barrier();
    });
    return static_cast<double>(operations.load()) / seconds_since(start) / 1e9;
}

}  // namespace edgewise
