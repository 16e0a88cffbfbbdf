#include "probe.h"

#include <immintrin.h>

#include "dispatch.h"

namespace edgewise::avx2 {

// vpmaddubsw multiplies 32 pairs and adds them two by two, vpaddw adds the 16 sums: 64 operations. Eight
// independent chains cover the latency of both.
int64_t multiply_loop(int64_t iterations) {
    constexpr int kChains = 8;
    __m256i codes = _mm256_set1_epi8(3), x = _mm256_set1_epi8(-5), sums[kChains] = {};
    for (int64_t i = 0; i < iterations; i++) {
        for (__m256i& sum : sums) {
            asm volatile("" : "+x"(codes));  // as if new: the product is not taken out of the loop
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
        }
    }
    for (__m256i& sum : sums) asm volatile("" : : "x"(sum));
    return iterations * kChains * 64;
}

uint64_t read_loop(const uint8_t* data, int64_t bytes) {
    constexpr int kStreams = 8;
    __m256i sums[kStreams] = {};
    for (int64_t i = 0; i < bytes; i += kStreams * 32) {
        for (int j = 0; j < kStreams; j++) {
            const auto* p = reinterpret_cast<const __m256i*>(data + i) + j;
            sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(p));
        }
    }
    for (int j = 1; j < kStreams; j++) sums[0] = _mm256_xor_si256(sums[0], sums[j]);
    alignas(32) uint64_t words[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(words), sums[0]);
    return words[0] ^ words[1] ^ words[2] ^ words[3];
}

}  // namespace edgewise::avx2
