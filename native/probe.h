// probe: what the machine can do at most, the yardsticks of `edgewise bench`: read bandwidth and int8
// multiply-adds.
#pragma once

#include <cstdint>

namespace edgewise {

class Pool;

// A loop of the fastest u8 x s8 multiply-add of the instruction set on registers alone; returns the
// operations done (a multiply and an add count two).
using MultiplyLoopFn = int64_t (*)(int64_t iterations);
// Reads [data, data + bytes), bytes a multiple of 256, and returns a value that depends on all of it.
using ReadLoopFn = uint64_t (*)(const uint8_t* data, int64_t bytes);

struct Kernels;

// GB/s (1e9 bytes) of all threads of the pool reading one buffer of `bytes` over and over for about
// `seconds`.
double read_bandwidth(Pool& pool, const Kernels& kernels, int64_t bytes, double seconds);
// GOP/s (1e9 operations) of `multiply_loop` on all threads of the pool at once.
double int8_peak(Pool& pool, const Kernels& kernels, double seconds);

}  // namespace edgewise
