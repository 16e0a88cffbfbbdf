#include "probe.h"

#include <cstring>

#include "dispatch.h"

namespace edgewise::generic {

int64_t multiply_loop(int64_t iterations) {
    constexpr int64_t kNumbers = 64;
    uint8_t a[kNumbers];
    int8_t b[kNumbers];
    std::memset(a, 3, sizeof a);
    std::memset(b, -3, sizeof b);
    int32_t sums[kNumbers] = {};
    for (int64_t i = 0; i < iterations; i++) {
        asm volatile(""
                     :
                     : "r"(a), "r"(b), "r"(sums)
                     : "memory");  // as if all were new: no round is left out
        for (int64_t k = 0; k < kNumbers; k++) sums[k] += a[k] * b[k];
    }
    asm volatile("" : : "r"(sums) : "memory");
    return iterations * kNumbers * 2;
}

uint64_t read_loop(const uint8_t* data, int64_t bytes) {
    uint64_t sums[4] = {}, words[4];
    for (int64_t i = 0; i < bytes; i += sizeof words) {
        std::memcpy(words, data + i, sizeof words);
        for (int j = 0; j < 4; j++) sums[j] += words[j];
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace edgewise::generic
