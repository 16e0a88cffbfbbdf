// attention: every instruction set equals generic bit for bit, whatever the tile, the alignment and the bytes
// a row does not see.
#include "attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "dispatch.h"
#include "numeric.h"

namespace {

using namespace edgewise;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint16_t kHalfNan = 0x7e55;
constexpr int64_t kGuard = 16;  // floats on either side of a result, set to kMark
constexpr float kMark = -12345.0f;

struct Random {
    std::mt19937 engine;
    float normal() { return std::normal_distribution<float>()(engine); }
    int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint32_t>(n)); }
};

struct Shape {
    int64_t key_dim, value_dim, kv_heads, group, rows, first_index;
    float soft_cap = 0.0f;
    int64_t window = 0, chunk = 0;

    int64_t num_keys() const { return first_index + rows; }
    std::string text() const {
        return "D " + std::to_string(key_dim) + "/" + std::to_string(value_dim) + " G " +
               std::to_string(group) + " rows " + std::to_string(rows) + " at " +
               std::to_string(first_index) + " window " + std::to_string(window) + " chunk " +
               std::to_string(chunk) + (soft_cap > 0 ? " capped" : "");
    }
};

// A cache with shuffled blocks; every slot that holds no key is NaN.
struct Cache {
    std::vector<uint16_t> memory;
    std::vector<int32_t> table;
    KvLayer kv;

    Cache(const Shape& shape, Random& random) {
        const int64_t used = (shape.num_keys() + kKvBlock - 1) / kKvBlock, blocks = used + 3;
        const int64_t keys = blocks * shape.kv_heads * shape.key_dim * kKvBlock;
        const int64_t values = blocks * shape.kv_heads * shape.value_dim * kKvBlock;
        memory.assign(static_cast<size_t>(keys + values + 64), kHalfNan);
        const auto address = reinterpret_cast<uintptr_t>(memory.data());
        auto* aligned = reinterpret_cast<uint16_t*>((address + 63) / 64 * 64);
        kv = {aligned, aligned + keys, shape.kv_heads, shape.key_dim, shape.value_dim};
        std::vector<int32_t> order(static_cast<size_t>(blocks));
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
        std::shuffle(order.begin(), order.end(), random.engine);
        table.assign(order.begin(), order.begin() + used);
        for (int64_t i = 0; i < shape.num_keys(); ++i) write(generic_kernels(), i, random);
    }

    void write(const Kernels& kernels, int64_t index, Random& random) {
        std::vector<float> k(static_cast<size_t>(kv.kv_heads * kv.key_dim));
        std::vector<float> v(static_cast<size_t>(kv.kv_heads * kv.value_dim));
        for (float& x : k) x = random.normal();
        for (float& x : v) x = random.normal();
        kernels.kv_write(kv, table.data(), index, k.data(), v.data());
    }

    uint16_t& value(int64_t index, int64_t head, int64_t d) {
        return kv.values[((table[static_cast<size_t>(index / kKvBlock)] * kv.kv_heads + head) * kKvBlock +
                          index % kKvBlock) *
                             kv.value_dim +
                         d];
    }
    uint16_t& key(int64_t index, int64_t head, int64_t d) {
        return kv
            .keys[((table[static_cast<size_t>(index / kKvBlock)] * kv.kv_heads + head) * kv.key_dim + d) *
                      kKvBlock +
                  index % kKvBlock];
    }
};

// Memory of n floats at `offset` floats from a 64-byte boundary, with marks about it.
struct Guarded {
    std::vector<float> memory;
    float* data;
    int64_t n;

    explicit Guarded(int64_t count, int64_t offset = 0)
        : memory(static_cast<size_t>(count + 2 * kGuard + 32), kMark), n(count) {
        const auto address = reinterpret_cast<uintptr_t>(memory.data());
        data = reinterpret_cast<float*>((address + 63) / 64 * 64) + kGuard + offset;
    }
    bool intact() const {
        for (int64_t i = 1; i <= kGuard; ++i) {
            if (data[-i] != kMark || data[n + i - 1] != kMark) return false;
        }
        return true;
    }
    std::vector<float> copy() const { return {data, data + n}; }
};

// The output [rows][group][value_dim] of head `kv_head`, computed in tiles of at most `tile_rows` rows.
std::vector<float> run(const Kernels& kernels, const Shape& shape, const Cache& cache, const float* q,
                       int64_t kv_head, const float* sinks, int64_t tile_rows, int64_t offset) {
    Guarded out(shape.rows * shape.group * shape.value_dim, offset);
    Guarded scratch(attention_scratch_floats(shape.group, shape.key_dim, shape.value_dim));
    AttentionArgs args;
    args.kv = cache.kv;
    args.block_table = cache.table.data();
    args.kv_head = kv_head;
    args.q_stride = shape.group * shape.key_dim;
    args.group = shape.group;
    args.scale = 0.3f;
    args.soft_cap = shape.soft_cap;
    args.window = shape.window;
    args.chunk = shape.chunk;
    args.scratch = scratch.data;
    for (int64_t row = 0; row < shape.rows; row += tile_rows) {
        args.rows = std::min(tile_rows, shape.rows - row);
        args.q = q + row * args.q_stride;
        args.first_index = shape.first_index + row;
        const int64_t n = args.rows * shape.group;
        Guarded max(n), sum(n), acc(n * shape.value_dim, offset), run_acc(n * shape.value_dim, offset);
        std::vector<float> run_max(static_cast<size_t>(n), -kInfinity), run_sum(static_cast<size_t>(n), 0.0f);
        std::fill_n(run_acc.data, run_acc.n, 0.0f);
        args.max = max.data;
        args.sum = sum.data;
        args.acc = acc.data;
        for (args.partition = 0; args.partition * kPartition < args.first_index + args.rows;
             ++args.partition) {
            kernels.attention(args);
            kernels.attention_fold(n, shape.value_dim, args.max, args.sum, args.acc, run_max.data(),
                                   run_sum.data(), run_acc.data);
        }
        kernels.attention_finish(args.rows, shape.group, shape.value_dim, sinks, run_max.data(),
                                 run_sum.data(), run_acc.data, out.data + row * shape.group * shape.value_dim,
                                 shape.group * shape.value_dim);
        CHECK(max.intact() && sum.intact() && acc.intact() && run_acc.intact(),
              shape.text() + ": wrote beyond a result");
    }
    CHECK(out.intact() && scratch.intact(), shape.text() + ": wrote beyond the output or the scratch");
    return out.copy();
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
            !(std::isnan(a[i]) && std::isnan(b[i])))
            return false;
    }
    return a.size() == b.size();
}

bool all_finite(const std::vector<float>& a) {
    for (float x : a) {
        if (!std::isfinite(x)) return false;
    }
    return true;
}

std::vector<float> queries(const Shape& shape, Random& random) {
    std::vector<float> q(static_cast<size_t>(shape.rows * shape.group * shape.key_dim + 8));
    for (float& x : q) x = random.normal();
    return q;
}

void test_shape(const Shape& shape, uint32_t seed) {
    Random random{std::mt19937(seed)};
    const Cache cache(shape, random);
    const std::vector<float> q = queries(shape, random);
    std::vector<float> sinks(static_cast<size_t>(shape.group));
    for (float& s : sinks) s = random.normal();
    for (const float* s : {static_cast<const float*>(nullptr), static_cast<const float*>(sinks.data())}) {
        const int64_t head = random.below(shape.kv_heads), offset = random.below(8);
        const float* start = q.data() + random.below(8);
        const std::vector<float> want =
            run(generic_kernels(), shape, cache, start, head, s, kMaxQueryRows, 0);
        // The NaNs of the empty slots must have stayed out.
        CHECK(all_finite(want),
              shape.text() + " seed " + std::to_string(seed) + ": a slot out of sight took part");
        for (const std::string& isa : available_isas()) {
            for (int64_t tile_rows : {kMaxQueryRows, int64_t{1}, int64_t{5}}) {
                if (isa == "generic" && tile_rows != 5) continue;
                const std::vector<float> got =
                    run(kernels_for(isa), shape, cache, start, head, s, tile_rows, offset);
                CHECK(same_bits(want, got), isa + " " + shape.text() + " tile " + std::to_string(tile_rows) +
                                                " seed " + std::to_string(seed) + ": differs from generic");
            }
        }
    }
}

void test_shapes() {
    uint32_t seed = 1;
    for (int64_t dim : {8, 64, 80, 128, 256}) {
        for (int64_t group = 1; group <= 8; ++group) {
            for (int64_t rows : {1, 2, 3, 7, 64}) {
                if (rows == 64 && group != dim / 16 - 1) continue;  // 64: 3, 80: 4, 128: 7
                Random random{std::mt19937(seed)};
                Shape shape{dim, dim, 1 + random.below(3), group, rows, random.below(700)};
                if (random.below(3) == 0) shape.window = 1 + random.below(400);
                if (random.below(4) == 0) shape.chunk = 1 + random.below(400);
                if (random.below(3) == 0) shape.soft_cap = 3.0f;
                test_shape(shape, seed++);
            }
        }
    }
    for (int64_t first : {0, 1, 31, 32, 33, 255, 256, 257, 511, 512})
        test_shape({64, 64, 1, 3, 3, first}, seed++);
    test_shape({64, 128, 2, 4, 9, 300}, seed++);
    test_shape({192, 128, 1, 16, 5, 70}, seed++);
    test_shape({64, 64, 1, 71, 3, 40}, seed++);
    test_shape({16, 24, 1, 130, 2, 290}, seed++);
    test_shape({64, 64, 1, 3, 64, 500, 0.0f, 7, 0}, seed++);
    test_shape({64, 64, 1, 3, 64, 500, 0.0f, 0, 33}, seed++);
}

// A NaN in one key or value reaches exactly the rows that see it; an infinite score makes NaN, not a crash.
void test_not_finite() {
    const Shape shape{64, 64, 1, 3, 40, 250};
    for (const std::string& isa : available_isas()) {
        Random random{std::mt19937(7)};
        Cache cache(shape, random);
        const std::vector<float> q = queries(shape, random);
        const std::vector<float> clean = run(kernels_for(isa), shape, cache, q.data(), 0, nullptr, 64, 0);
        const int64_t poisoned = 270, width = shape.group * shape.value_dim;
        for (int kind = 0; kind < 3; ++kind) {
            uint16_t& cell = kind == 0 ? cache.value(poisoned, 0, 5) : cache.key(poisoned, 0, 5);
            const uint16_t saved = cell;
            cell = kind == 2 ? 0x7c00 : kHalfNan;
            const std::vector<float> got = run(kernels_for(isa), shape, cache, q.data(), 0, nullptr, 64, 0);
            const std::vector<float> want = run(generic_kernels(), shape, cache, q.data(), 0, nullptr, 64, 0);
            cell = saved;
            CHECK(same_bits(want, got), isa + ": differs from generic with a cell that is not finite");
            const int64_t before = (poisoned - shape.first_index) * width;
            CHECK(std::memcmp(got.data(), clean.data(), static_cast<size_t>(before) * 4) == 0,
                  isa + ": a later key took part");
            CHECK(kind == 2 || std::isnan(got[static_cast<size_t>(before + 5)]), isa + ": the NaN was lost");
        }
    }
    CHECK(std::isnan(vector_exp(kNan)) && vector_exp(-kInfinity) == 0.0f && vector_exp(0.0f) == 1.0f,
          "vector_exp at its ends");
}

void test_write() {
    const Shape shape{64, 48, 3, 1, 1, 99};
    std::vector<std::vector<uint16_t>> memories;
    for (const std::string& isa : available_isas()) {
        Random random{std::mt19937(11)};
        Cache cache(shape, random);
        std::vector<float> k(3 * 64), v(3 * 48);
        for (float& x : k) x = random.normal() * std::ldexp(1.0f, static_cast<int>(random.below(60)) - 40);
        for (float& x : v) x = random.normal() * std::ldexp(1.0f, static_cast<int>(random.below(60)) - 40);
        k[3] = kNan;
        v[7] = kInfinity;
        kernels_for(isa).kv_write(cache.kv, cache.table.data(), 77, k.data(), v.data());
        for (int64_t i = 0; i < 3 * 64; ++i) {
            CHECK(cache.key(77, i / 64, i % 64) == float_to_half(k[static_cast<size_t>(i)]),
                  isa + ": a key went astray");
        }
        for (int64_t i = 0; i < 3 * 48; ++i) {
            CHECK(cache.value(77, i / 48, i % 48) == float_to_half(v[static_cast<size_t>(i)]),
                  isa + ": a value went astray");
        }
        // All else stays as it was: compared from the aligned start on.
        const int64_t cells = cache.kv.values - cache.kv.keys;
        memories.emplace_back(cache.kv.keys, cache.kv.keys + cells + 5 * 3 * 48 * kKvBlock);
        CHECK(memories.back() == memories.front(), isa + ": memory differs after a write");
    }
}

}  // namespace

int main() {
    test_shapes();
    test_not_finite();
    test_write();
    return edgewise::testing::report("attention_test");
}
