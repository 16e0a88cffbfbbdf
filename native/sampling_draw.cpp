// Three ways to a random token, each linear in the vocabulary:
//   top_k up to kHeapLimit     a heap of the best, filled by a scan that stops only at logits above the worst
//   kept other filters              weights in buckets; the cuts walk the buckets and sort only those they
//   end in temperature alone          sums of stretches, then a walk through one stretch
#include "sampling_draw.h"

#include <algorithm>
#include <limits>

namespace edgewise {
namespace {

constexpr int64_t kHeapLimit = 256;

// Weights of n logits into scratch.weights, buckets beside them.
void weigh(SampleScratch& scratch, const SampleRow& row, const float* x, int64_t n, float max) {
    if (static_cast<int64_t>(scratch.weights.size()) < n) {
        scratch.weights.resize(n);
        scratch.buckets.resize(n);
    }
    scratch.scans.weigh(x, n, max, row.temperature, row.min_p, scratch.weights.data(),
                        scratch.buckets.data());
}

// The first index at which the running sum of the weights exceeds `target`. Sums taken in another order can
// leave it just short of a target below their own total: then the last index of positive weight.
int64_t locate(const float* weights, int64_t n, double target) {
    double sum = 0.0;
    int64_t last = 0;
    for (int64_t i = 0; i < n; ++i) {
        sum += static_cast<double>(weights[i]);
        if (sum > target) return i;
        if (weights[i] > 0.0f) last = i;
    }
    return last;
}

int32_t draw_from_best(const SampleRow& row, const float* x, int64_t vocab, float max, double u,
                       SampleScratch& scratch) {
    find_best(scratch, x, vocab, row.top_k);
    const std::vector<Candidate>& best = scratch.candidates;
    scratch.logits.resize(best.size());
    for (size_t i = 0; i < best.size(); ++i) scratch.logits[i] = best[i].logit;
    int64_t count = static_cast<int64_t>(best.size());
    weigh(scratch, row, scratch.logits.data(), count, max);
    double limit = std::numeric_limits<double>::infinity(), mass = 0.0;
    auto sum_until_limit = [&] {
        int64_t i = 0;
        for (mass = 0.0; i < count && scratch.buckets[i] != kNoBucket && mass < limit; ++i) {
            mass += static_cast<double>(scratch.weights[i]);
        }
        return i;
    };
    count = sum_until_limit();
    if (row.top_p < 1.0f) {
        limit = static_cast<double>(row.top_p) * mass;
        count = sum_until_limit();
    }
    return best[locate(scratch.weights.data(), count, u * mass)].id;
}

int32_t draw_from_all(const SampleRow& row, const float* x, int64_t vocab, float max, double u,
                      SampleScratch& scratch) {
    auto length = [&](int64_t begin) { return std::min(kSumStretch, vocab - begin); };
    std::vector<double>& sums = scratch.sums;
    sums.clear();
    double total = 0.0;
    for (int64_t begin = 0; begin < vocab; begin += kSumStretch) {
        sums.push_back(scratch.scans.weight_sum(x + begin, length(begin), max, row.temperature));
        total += sums.back();
    }
    // u <= 1 - 2^-53 keeps the target below the total, which the same sums in the same order reach.
    double target = u * total, before = 0.0;
    size_t stretch = 0;
    while (before + sums[stretch] <= target) before += sums[stretch++];
    int64_t begin = static_cast<int64_t>(stretch) * kSumStretch;
    weigh(scratch, row, x + begin, length(begin), max);
    return static_cast<int32_t>(begin + locate(scratch.weights.data(), length(begin), target - before));
}

// The candidates in order, bucket by bucket; a bucket is sorted when something is decided inside it.
class BucketWalk {
  public:
    // The survivors of a filter: all buckets before `bucket` and the first `rank` candidates of it.
    struct Cut {
        int32_t bucket;
        int64_t rank;
        double mass;
    };

    BucketWalk(SampleScratch& scratch, const float* x, int64_t vocab)
        : scratch_(scratch), x_(x), vocab_(vocab) {
        const uint16_t* buckets = scratch.buckets.data();
        for (int64_t i = 0; i < vocab; ++i) {
            if (buckets[i] == kNoBucket) continue;
            ++counts_[buckets[i]];
            sums_[buckets[i]] += static_cast<double>(scratch.weights[i]);
        }
    }

    Cut first(int64_t count) {
        double mass = 0.0;
        for (int32_t b = 0; b < kNumBuckets; ++b) {
            if (count < counts_[b]) {
                sort(b);
                for (int64_t i = 0; i < count; ++i) mass += static_cast<double>(weights_[i]);
                return {b, count, mass};
            }
            count -= counts_[b];
            mass += sums_[b];
        }
        return {kNumBuckets, 0, mass};
    }

    // The shortest run of `outer`'s candidates whose mass reaches `limit`.
    Cut until(const Cut& outer, double limit) {
        double mass = 0.0;
        for (int32_t b = 0; b < outer.bucket; ++b) {
            if (mass + sums_[b] >= limit) return inside(b, counts_[b], mass, limit);
            mass += sums_[b];
        }
        return outer.rank > 0 ? inside(outer.bucket, outer.rank, mass, limit) : outer;
    }

    int32_t at(const Cut& cut, double target) {
        double before = 0.0;
        int32_t b = 0;
        while (b < cut.bucket && before + sums_[b] <= target) before += sums_[b++];
        // Past the whole buckets only by rounding if the cut has no part of one.
        int64_t size = b < cut.bucket ? counts_[b] : cut.rank;
        while (size == 0) size = counts_[--b];
        sort(b);
        return scratch_.candidates[locate(weights_.data(), size, target - before)].id;
    }

  private:
    Cut inside(int32_t bucket, int64_t size, double before, double limit) {
        sort(bucket);
        for (int64_t i = 0; i < size; ++i) {
            before += static_cast<double>(weights_[i]);
            if (before >= limit) return {bucket, i + 1, before};
        }
        return {bucket, size, before};
    }

    void sort(int32_t bucket) {
        if (bucket == sorted_) return;
        sorted_ = bucket;
        std::vector<Candidate>& list = scratch_.candidates;
        list.clear();
        const uint16_t* buckets = scratch_.buckets.data();
        for (int64_t i = 0; i < vocab_; ++i) {
            if (buckets[i] == bucket) list.push_back({x_[i], static_cast<int32_t>(i)});
        }
        // Ids ascend already, so a list of equal logits is in order.
        if (!std::is_sorted(list.begin(), list.end(), better)) std::sort(list.begin(), list.end(), better);
        weights_.clear();
        for (const Candidate& c : list) weights_.push_back(scratch_.weights[c.id]);
    }

    SampleScratch& scratch_;
    const float* x_;
    int64_t vocab_;
    int32_t sorted_ = -1;
    int64_t counts_[kNumBuckets] = {};
    double sums_[kNumBuckets] = {};
    std::vector<float> weights_;  // of the sorted bucket
};

int32_t draw_from_buckets(const SampleRow& row, const float* x, int64_t vocab, float max, double u,
                          SampleScratch& scratch) {
    weigh(scratch, row, x, vocab, max);
    BucketWalk walk(scratch, x, vocab);
    BucketWalk::Cut cut = walk.first(row.top_k > 0 ? row.top_k : vocab);
    if (row.top_p < 1.0f) cut = walk.until(cut, static_cast<double>(row.top_p) * cut.mass);
    return walk.at(cut, u * cut.mass);
}

}  // namespace

void find_best(SampleScratch& scratch, const float* x, int64_t vocab, int64_t count) {
    std::vector<Candidate>& heap = scratch.candidates;
    heap.clear();
    if (count == 0) return;
    float threshold = -std::numeric_limits<float>::infinity();
    auto next = [&](int64_t from) { return scratch.scans.next_above(x, from, vocab, threshold); };
    for (int64_t i = next(0); i < vocab; i = next(i + 1)) {
        if (static_cast<int64_t>(heap.size()) == count) {
            std::pop_heap(heap.begin(), heap.end(), better);  // ordered by `better`, the worst is on top
            heap.pop_back();
        }
        heap.push_back({x[i], static_cast<int32_t>(i)});
        std::push_heap(heap.begin(), heap.end(), better);
        // Later ids lose ties: only logits strictly above the worst kept matter.
        if (static_cast<int64_t>(heap.size()) == count) threshold = heap.front().logit;
    }
    std::sort_heap(heap.begin(), heap.end(), better);
}

int32_t draw(const SampleRow& row, const float* x, int64_t vocab, float max, SampleScratch& scratch) {
    double u = uniform(row.seed, row.counter);
    bool cuts_count = row.top_k > 0 && row.top_k < vocab;
    if (cuts_count && row.top_k <= kHeapLimit) return draw_from_best(row, x, vocab, max, u, scratch);
    if (cuts_count || row.top_p < 1.0f || row.min_p > 0.0f)
        return draw_from_buckets(row, x, vocab, max, u, scratch);
    return draw_from_all(row, x, vocab, max, u, scratch);
}

}  // namespace edgewise
