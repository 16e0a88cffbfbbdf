#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dispatch.h"
#include "sampling_draw.h"

namespace edgewise {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const SamplingScans& scans_for(const std::string& isa) {
    [[maybe_unused]] const std::string chosen = kernels_for(isa).isa;  // refuses what this machine lacks
#if EDGEWISE_HAVE_AVX2
    if (chosen == "avx2") return avx2::sampling_scans;
#endif
    return generic::sampling_scans;
}

bool inside(int32_t id, int64_t vocab) { return id >= 0 && id < vocab; }

bool has_penalties(const SampleRow& row) {
    return row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f || row.presence_penalty != 0.0f;
}

bool has_edits(const SampleRow& row) {
    return row.allowed || !row.banned.empty() || !row.bias_ids.empty() || has_penalties(row);
}

float penalized(const SampleRow& row, float x, int32_t count) {
    if (row.repetition_penalty != 1.0f)
        x = x > 0.0f ? x / row.repetition_penalty : x * row.repetition_penalty;
    if (count > 0) {
        x -= row.frequency_penalty * static_cast<float>(count);
        x -= row.presence_penalty;
    }
    return x;
}

void penalize(const SampleRow& row, float* x, int64_t vocab, std::vector<int32_t>& counts) {
    if (static_cast<int64_t>(counts.size()) < vocab) counts.resize(vocab, 0);
    for (int32_t id : row.output) {
        if (inside(id, vocab)) ++counts[id];
    }
    constexpr int32_t kDone = -1;
    for (std::span<const int32_t> history : {row.output, row.prompt}) {
        for (int32_t id : history) {
            if (!inside(id, vocab) || counts[id] == kDone) continue;
            x[id] = penalized(row, x[id], counts[id]);
            counts[id] = kDone;
        }
    }
    for (std::span<const int32_t> history : {row.output, row.prompt}) {
        for (int32_t id : history) {
            if (inside(id, vocab)) counts[id] = 0;
        }
    }
}

void edit(const SampleRow& row, float* x, int64_t vocab, SampleScratch& scratch) {
    if (row.allowed) scratch.scans.mask(x, vocab, row.allowed);
    for (int32_t id : row.banned) {
        if (inside(id, vocab)) x[id] = -kInfinity;
    }
    for (size_t i = 0; i < row.bias_ids.size(); ++i) {
        if (inside(row.bias_ids[i], vocab)) x[row.bias_ids[i]] += row.bias_values[i];
    }
    if (has_penalties(row)) penalize(row, x, vocab, scratch.counts);
}

// ln x for x >= 1, the same bits everywhere: x = 2^e m, ln m = 2 atanh(f), f = (m - 1) / (m + 1), |f| <
// 0.172; the series is cut where f^22 / 23 < 2^-58.
double natural_log(double x) {
    int exponent;
    double m = std::frexp(x, &exponent);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2.0;
        --exponent;
    }
    double f = (m - 1.0) / (m + 1.0), z = f * f, series = 0.0;
    for (int k = 10; k >= 1; --k) series = (series + 1.0 / (2 * k + 1)) * z;
    return exponent * 0x1.62e42fefa39efp-1 + 2.0 * f * (1.0 + series);
}

// The logarithm of the sum of exp(x - max).
double log_mass(const SamplingScans& scans, const float* x, int64_t vocab, float max) {
    double sum = 0.0;
    for (int64_t begin = 0; begin < vocab; begin += kSumStretch) {
        sum += scans.weight_sum(x + begin, std::min(kSumStretch, vocab - begin), max, 1.0f);
    }
    return natural_log(sum);
}

int32_t rank_of(const SamplingScans& scans, const float* x, int64_t vocab, int32_t id) {
    int64_t rank = 1 + scans.count_above(x, vocab, x[id]);
    for (int64_t i = 0; i < id; ++i) rank += x[i] == x[id];
    return static_cast<int32_t>(rank);
}

// Log-probabilities of `choice` and of the best, from the unedited logits x.
void report(const SampleRow& row, const float* x, int64_t vocab, float max, SampleScratch& scratch,
            SampleChoice& choice, int32_t* top_ids, float* top_logprobs) {
    double log_sum = log_mass(scratch.scans, x, vocab, max);
    auto logprob = [&](int32_t id) {
        return static_cast<float>(static_cast<double>(x[id]) - static_cast<double>(max) - log_sum);
    };
    choice.logprob = logprob(choice.id);
    choice.rank = rank_of(scratch.scans, x, vocab, choice.id);
    int64_t count = top_count(row.num_logprobs, vocab);
    find_best(scratch, x, vocab, count);
    int64_t found = static_cast<int64_t>(scratch.candidates.size());
    for (int64_t i = 0; i < found; ++i) {
        top_ids[i] = scratch.candidates[i].id;
        top_logprobs[i] = logprob(top_ids[i]);
    }
    // Tokens at -inf come last, by id.
    for (int32_t id = 0; found < count && id < vocab; ++id) {
        if (x[id] != -kInfinity) continue;
        top_ids[found] = id;
        top_logprobs[found++] = -kInfinity;
    }
}

struct Philox {
    uint32_t word[4];
};

Philox philox(uint64_t seed, uint64_t counter) {
    uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    Philox c{{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}};
    for (int round = 0; round < 10; ++round) {
        uint64_t a = uint64_t{0xD2511F53} * c.word[0], b = uint64_t{0xCD9E8D57} * c.word[2];
        c = {{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ key[0], static_cast<uint32_t>(b),
              static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ key[1], static_cast<uint32_t>(a)}};
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return c;
}

}  // namespace

double uniform(uint64_t seed, uint64_t counter) {
    Philox random = philox(seed, counter);
    uint64_t bits = uint64_t{random.word[1]} << 32 | random.word[0];
    return static_cast<double>(bits >> 11) * 0x1p-53;
}

int64_t top_count(int32_t num_logprobs, int64_t vocab) {
    if (num_logprobs == kWholeVocabulary) return vocab;
    return std::clamp<int64_t>(num_logprobs, 0, vocab);
}

Sampler::Sampler(const std::string& isa)
    : scratch_(new SampleScratch{scans_for(isa), {}, {}, {}, {}, {}, {}, {}}) {}
Sampler::~Sampler() = default;

SampleChoice Sampler::sample(const SampleRow& row, float* logits, int64_t vocab, int32_t* top_ids,
                             float* top_logprobs) {
    SampleScratch& scratch = *scratch_;
    SamplingScans::Peak raw_peak = scratch.scans.peak(logits, vocab), peak = raw_peak;
    if (peak.bad) return {kBadLogits};
    if (peak.value == -kInfinity) return {kNothingLeft};
    const float* raw = logits;
    if (row.forced < 0 && has_edits(row)) {
        if (row.num_logprobs != kNoLogprobs) {
            scratch.raw.assign(logits, logits + vocab);
            raw = scratch.raw.data();
        }
        edit(row, logits, vocab, scratch);
        peak = scratch.scans.peak(logits, vocab);
        if (peak.bad) return {kBadLogits};
        if (peak.value == -kInfinity) return {kNothingLeft};
    }
    SampleChoice choice{row.forced};
    if (row.forced < 0) {
        bool greedy = row.temperature == 0.0f;
        choice.id = greedy ? static_cast<int32_t>(peak.index) : draw(row, logits, vocab, peak.value, scratch);
    }
    if (row.num_logprobs != kNoLogprobs) {
        report(row, raw, vocab, raw_peak.value, scratch, choice, top_ids, top_logprobs);
    }
    return choice;
}

}  // namespace edgewise
