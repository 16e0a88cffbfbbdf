// sampling: from a row of logits to a token, and the log-probabilities people ask for.
//
// A row goes through, in this order (vLLM's): tokens not allowed or banned become -inf; bias; repetition,
// frequency and presence penalty; temperature; min_p; top_k; top_p; then the inverse of the cumulated
// distribution at one uniform number. Reported log-probabilities are those of the logits before all that.
//
// The outcome depends on (logits, parameters, seed, counter) only and is the same on every machine: weights
// are
//     w_i = vector_exp((x_i - max x) / temperature)         float, numeric.h
// and every sum of them is in double in an order fixed by the vocabulary's size: sums over ids use 8 lanes
// (lane j adds i = j mod 8 ascending, then ((0+4)+(2+6))+((1+5)+(3+7))) within stretches of kSumStretch,
// which are added in order. With a filter the candidates are ordered by (logit descending, id ascending);
// without one by id.
//
// Ids outside the vocabulary in any list are passed over: histories may hold placeholders of media.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace edgewise {

inline constexpr int64_t kSumStretch = 4096;

// What SampleChoice::id says when there is no token.
inline constexpr int32_t kBadLogits = -1;    // a logit is NaN or +inf
inline constexpr int32_t kNothingLeft = -2;  // every token is masked, or -inf

// Values of SampleRow::num_logprobs besides a number of alternatives >= 0.
inline constexpr int32_t kWholeVocabulary = -1;
inline constexpr int32_t kNoLogprobs = -2;

struct SampleRow {
    float temperature = 0.0f;  // 0: greedy, ties to the lowest id
    float top_p = 1.0f;        // 1: off
    int32_t top_k = 0;         // 0: off
    float min_p = 0.0f;        // relative to the likeliest token; 0: off
    float repetition_penalty = 1.0f;
    float frequency_penalty = 0.0f;
    float presence_penalty = 0.0f;
    std::span<const int32_t> prompt;  // with output: what the repetition penalty applies to
    std::span<const int32_t> output;  // what frequency and presence penalty apply to
    std::span<const int32_t> banned;
    std::span<const int32_t> bias_ids;
    std::span<const float> bias_values;
    const uint32_t* allowed = nullptr;  // bit i % 32 of word i / 32; null: all
    uint64_t seed = 0;
    uint64_t counter = 0;
    int32_t forced = -1;  // >= 0: this token is taken, only its log-probabilities are worked out
    int32_t num_logprobs = kNoLogprobs;
};

struct SampleChoice {
    int32_t id = kNothingLeft;
    float logprob = 0.0f;  // 0 where not asked for
    int32_t rank = 0;      // place in (logit descending, id ascending) from 1; 0 where not asked for
};

struct SampleScratch;

// Chooses tokens row by row; keeps memory between rows (18 bytes a token of the vocabulary). Not for two
// threads at once.
class Sampler {
  public:
    explicit Sampler(const std::string& isa = "auto");  // or "generic", "avx2"; the outcome is the same
    ~Sampler();
    // Chooses from logits [vocab], which it edits. top_ids and top_logprobs receive the alternatives
    // row.num_logprobs asks for, top_count() of them, best first; where the choice is an error they are left
    // alone.
    SampleChoice sample(const SampleRow& row, float* logits, int64_t vocab, int32_t* top_ids,
                        float* top_logprobs);

  private:
    std::unique_ptr<SampleScratch> scratch_;
};

// Alternatives reported for SampleRow::num_logprobs.
int64_t top_count(int32_t num_logprobs, int64_t vocab);

// Uniform in [0, 1) with 53 bits: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", 2011) with the key (seed) and the counter (counter, 0).
double uniform(uint64_t seed, uint64_t counter);

// The passes over a whole row; every instruction set gives the same values.
struct SamplingScans {
    struct Peak {
        float value;    // the largest logit, NaN passed over; -inf where n = 0
        int64_t index;  // its lowest index
        bool bad;       // a NaN or +inf is present
    };
    Peak (*peak)(const float* x, int64_t n);
    // The first i in [from, n) with x[i] > threshold, or n.
    int64_t (*next_above)(const float* x, int64_t from, int64_t n, float threshold);
    int64_t (*count_above)(const float* x, int64_t n, float threshold);
    // Sum of the weights of one stretch: 8 lanes as above.
    double (*weight_sum)(const float* x, int64_t n, float max, float temperature);
    // weights[i] = w_i; buckets[i] = the bucket of i, or kNoBucket where w_i = 0 or w_i < min_weight.
    void (*weigh)(const float* x, int64_t n, float max, float temperature, float min_weight, float* weights,
                  uint16_t* buckets);
    // x[i] = -inf where bit i of `allowed` is 0.
    void (*mask)(float* x, int64_t n, const uint32_t* allowed);
};

// Buckets cut the candidates by z = (x - max) / temperature into steps of 1 / kBucketsPerUnit, best first, so
// that only the buckets in which something is decided need sorting: bucket = min(int(-z * kBucketsPerUnit),
// kNumBuckets - 1).
inline constexpr float kBucketsPerUnit = 64.0f;
inline constexpr int32_t kNumBuckets = 2048;
inline constexpr uint16_t kNoBucket = 0xffff;

namespace generic {
extern const SamplingScans sampling_scans;
}
#if EDGEWISE_HAVE_AVX2
namespace avx2 {
extern const SamplingScans sampling_scans;
}
#endif

}  // namespace edgewise
