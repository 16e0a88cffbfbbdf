// sampling: the passes of every instruction set equal generic bit for bit, and so do whole choices.
#include "sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "dispatch.h"

namespace {

using namespace edgewise;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Random {
    std::mt19937 engine;
    float normal() { return std::normal_distribution<float>()(engine); }
    int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint32_t>(n)); }
};

// Logits with ties, some of them -inf.
std::vector<float> some_logits(int64_t n, Random& random) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) {
        v = random.normal() * 4.0f;
        if (random.below(3) == 0) v = std::round(v);
        if (random.below(10) == 0) v = -kInfinity;
    }
    return x;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    if constexpr (std::is_same_v<T, float>) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
            return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
        });
    } else {
        return a == b;
    }
}

#if EDGEWISE_HAVE_AVX2
void test_peak(const SamplingScans& want, const SamplingScans& got, const std::vector<float>& memory,
               int64_t offset, int64_t n) {
    const SamplingScans::Peak a = want.peak(memory.data() + offset, n),
                              b = got.peak(memory.data() + offset, n);
    const std::string where = "n " + std::to_string(n);
    CHECK(a.value == b.value && a.index == b.index && a.bad == b.bad, where + ": peak");
}

void test_scans() {
    const SamplingScans& want = generic::sampling_scans;
    const SamplingScans& got = avx2::sampling_scans;
    Random random{std::mt19937(3)};
    for (int64_t n :
         {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 100, 2047, 2048, 2049, 4096, 5003}) {
        const int64_t offset = random.below(8);
        const std::string where = "n " + std::to_string(n);
        std::vector<float> memory = some_logits(n + offset, random);
        const float* x = memory.data() + offset;
        test_peak(want, got, memory, offset, n);
        if (n > 0) {  // the maximum twice, the second time in another stretch of the scan where there is one
            std::vector<float> tied = memory;
            tied[static_cast<size_t>(offset + n / 3)] = tied[static_cast<size_t>(offset + n - 1)] = 50.0f;
            test_peak(want, got, tied, offset, n);
        }
        for (float bad : {kNan, kInfinity}) {
            if (n == 0) continue;
            std::vector<float> poisoned = memory;
            poisoned[static_cast<size_t>(offset + random.below(n))] = bad;
            test_peak(want, got, poisoned, offset, n);
            CHECK(got.peak(poisoned.data() + offset, n).bad, where + ": a bad logit was missed");
        }
        for (float threshold : {-kInfinity, -1.0f, 0.0f, 3.0f, 100.0f}) {
            CHECK(want.count_above(x, n, threshold) == got.count_above(x, n, threshold),
                  where + ": count_above");
            for (int64_t from : {int64_t{0}, n / 2, n}) {
                CHECK(want.next_above(x, from, n, threshold) == got.next_above(x, from, n, threshold),
                      where + ": next_above");
            }
        }
        for (float temperature : {0.01f, 0.7f, 1.0f, 3.0f}) {
            const float max = want.peak(x, n).value > -kInfinity ? want.peak(x, n).value : 0.0f;
            CHECK(std::bit_cast<uint64_t>(want.weight_sum(x, n, max, temperature)) ==
                      std::bit_cast<uint64_t>(got.weight_sum(x, n, max, temperature)),
                  where + ": weight_sum");
            for (float floor : {0.0f, 0.05f}) {
                std::vector<float> wa(static_cast<size_t>(n) + 8, -1.0f), wb = wa;
                std::vector<uint16_t> ba(static_cast<size_t>(n) + 8, 77), bb = ba;
                want.weigh(x, n, max, temperature, floor, wa.data(), ba.data());
                got.weigh(x, n, max, temperature, floor, wb.data(), bb.data());
                CHECK(same(wa, wb) && same(ba, bb), where + ": weigh");
            }
        }
        std::vector<uint32_t> allowed(static_cast<size_t>(n / 32 + 1));
        for (uint32_t& word : allowed) word = random.below(3) == 0 ? 0xffffffffu : random.engine();
        std::vector<float> a = memory, b = memory;
        want.mask(a.data() + offset, n, allowed.data());
        got.mask(b.data() + offset, n, allowed.data());
        CHECK(same(a, b), where + ": mask");
    }
}
#endif

struct Outcome {
    SampleChoice choice;
    std::vector<int32_t> ids;
    std::vector<float> logprobs, logits;

    bool operator==(const Outcome& other) const {
        return choice.id == other.choice.id && choice.logprob == other.choice.logprob &&
               choice.rank == other.choice.rank && ids == other.ids && same(logprobs, other.logprobs) &&
               same(logits, other.logits);
    }
};

Outcome choose(Sampler& sampler, const SampleRow& row, std::vector<float> logits) {
    const auto vocab = static_cast<int64_t>(logits.size());
    const auto count = static_cast<size_t>(top_count(row.num_logprobs, vocab));
    Outcome outcome{{}, std::vector<int32_t>(count), std::vector<float>(count), std::move(logits)};
    outcome.choice =
        sampler.sample(row, outcome.logits.data(), vocab, outcome.ids.data(), outcome.logprobs.data());
    return outcome;
}

void test_rows() {
    Random random{std::mt19937(5)};
    Sampler generic("generic"), best("auto");
    for (int i = 0; i < 3000; ++i) {
        const int64_t vocab = 1 + random.below(i % 10 == 0 ? 9000 : 300);
        std::vector<float> logits = some_logits(vocab, random);
        SampleRow row;
        row.temperature = random.below(4) == 0 ? 0.0f : 0.2f + std::fabs(random.normal());
        row.top_k = random.below(2) ? 0 : static_cast<int32_t>(random.below(vocab + 2));
        row.top_p = random.below(2) ? 1.0f : 0.3f + 0.1f * static_cast<float>(random.below(7));
        row.min_p = random.below(3) ? 0.0f : 0.02f;
        row.num_logprobs = static_cast<int32_t>(random.below(5)) - 2;
        row.seed = random.engine();
        row.counter = static_cast<uint64_t>(i);
        std::vector<int32_t> history(static_cast<size_t>(random.below(20)));
        for (int32_t& id : history) id = static_cast<int32_t>(random.below(vocab + 4)) - 2;
        row.output = history;
        row.prompt = std::span(history).subspan(history.size() / 2);
        if (random.below(2)) row.repetition_penalty = 1.3f;
        if (random.below(2)) row.frequency_penalty = 0.4f;
        const Outcome want = choose(generic, row, logits), got = choose(best, row, logits),
                      again = choose(best, row, logits);
        const std::string where = "row " + std::to_string(i);
        CHECK(want == got, where + ": differs from generic");
        CHECK(got == again, where + ": differs from its own first outcome");
        CHECK(got.choice.id < vocab, where + ": an id outside the vocabulary");
        if (got.choice.id >= 0)
            CHECK(got.logits[static_cast<size_t>(got.choice.id)] > -kInfinity, where + ": a masked token");
    }
}

void test_ends() {
    Sampler sampler;
    SampleRow row;
    row.temperature = 1.0f;
    CHECK(choose(sampler, row, {0.0f, kNan}).choice.id == kBadLogits, "NaN");
    CHECK(choose(sampler, row, {0.0f, kInfinity}).choice.id == kBadLogits, "+inf");
    CHECK(choose(sampler, row, {-kInfinity, -kInfinity}).choice.id == kNothingLeft, "all -inf");
    const uint32_t none = 0;
    row.allowed = &none;
    CHECK(choose(sampler, row, {0.0f, 1.0f}).choice.id == kNothingLeft, "all masked");
    row.allowed = nullptr;
    row.temperature = 0.0f;
    CHECK(choose(sampler, row, {1.0f, 3.0f, 3.0f}).choice.id == 1, "a tie goes to the lowest id");
    row.forced = 2;
    row.num_logprobs = 0;
    const SampleChoice forced = choose(sampler, row, {1.0f, 3.0f, 3.0f}).choice;
    CHECK(forced.id == 2 && forced.rank == 2, "a forced token has its rank");
    // Published test vector of Philox 4x32-10: counter 0, key 0 gives 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
    CHECK(uniform(0, 0) == static_cast<double>((uint64_t{0xe169c58d} << 32 | 0x6627e8d5u) >> 11) * 0x1p-53,
          "Philox");
}

}  // namespace

int main() {
#if EDGEWISE_HAVE_AVX2
    if (available_isas().front() == "avx2") test_scans();
#endif
    test_rows();
    test_ends();
    return edgewise::testing::report("sampling_test");
}
