// sampling_draw: one random token from the edited logits of a row, after temperature, min_p, top_k and top_p.
#pragma once

#include <vector>

#include "sampling.h"

namespace edgewise {

struct Candidate {
    float logit;
    int32_t id;
};

inline bool better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

struct SampleScratch {
    const SamplingScans& scans;
    std::vector<float> raw;  // the unedited row, where log-probabilities are asked for and the row is edited
    std::vector<int32_t> counts;    // by id, all zero between rows
    std::vector<float> logits;      // of the candidates
    std::vector<double> sums;       // of stretches
    std::vector<float> weights;     // by id or candidate
    std::vector<uint16_t> buckets;  // by id or candidate
    std::vector<Candidate> candidates;
};

// Fills scratch.candidates with the `count` best logits above -inf, best first.
void find_best(SampleScratch& scratch, const float* x, int64_t vocab, int64_t count);

// x [vocab]: no NaN, its maximum `max` finite; row.temperature > 0.
int32_t draw(const SampleRow& row, const float* x, int64_t vocab, float max, SampleScratch& scratch);

}  // namespace edgewise
