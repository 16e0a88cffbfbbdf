// The vocabulary of the native code: number formats, packed matrices, quantised activations.
// Nothing here knows Python, allocates or starts a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace edgewise {

// A weight format names what one number means; the order of bytes in memory is the layout's matter.
// The names are GGUF's. Formats that GGUF has and this list lacks are converted at build.
enum class Format : int32_t { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

// How many rows are interleaved: R8 for AVX2, R16 for AVX-512, R4 for NEON dot/i8mm.
// The generic code runs every layout.
enum class Layout : int32_t { R4 = 4, R8 = 8, R16 = 16 };

// A weight matrix [rows, cols] in packed form; row i gives output i. `data` is 64-byte aligned, not owned.
// Rows are padded to a multiple of the interleave with zeros, which contribute exactly nothing. Columns are a
// multiple of the format's GGUF block (1, 32 or 256) and never padded. formats.h has the order of bytes.
struct PackedMatrix {
    Format format = Format::F32;
    Layout layout = Layout::R8;
    int64_t rows = 0;
    int64_t cols = 0;
    const uint8_t* data = nullptr;
    int64_t bytes = 0;

    int64_t interleave() const { return static_cast<int64_t>(layout); }
    int64_t row_blocks() const { return (rows + interleave() - 1) / interleave(); }
};

[[maybe_unused]] static inline bool is_float(Format f) {
    return f == Format::F32 || f == Format::F16 || f == Format::BF16;
}

// Activations of T tokens and K columns, quantised per token and group of 32 to int8 in [-127, 127].
// Tokens are cut into blocks of kTokenBlock; within a block of n tokens the order is group-major, so that a
// kernel that holds one group's weights in registers walks the tokens through contiguous memory:
//   codes  int8  [block][G][n][32]
//   scales f32   [block][G][n]         x = scale * code
//   sums   int16 [block][G][n][2]      sums of the codes of the first and second 16 of the group
// G = ceil(K / 32) rounded up to a multiple of 8 (padded_groups); the padding is zero
// (code 0, scale 0, sum 0). A block starts at code byte kTokenBlock * block_index * G * 32.
inline constexpr int64_t kTokenBlock = 64;
inline constexpr int64_t kGroup = 32;

struct QuantizedRows {
    int64_t tokens = 0;
    int64_t cols = 0;         // K, unpadded
    int64_t groups = 0;       // G, padded
    int8_t* codes = nullptr;  // 64-byte aligned
    float* scales = nullptr;  // 64-byte aligned
    int16_t* sums = nullptr;  // 64-byte aligned
};

[[maybe_unused]] static inline int64_t padded_groups(int64_t cols) { return ((cols + 255) / 256) * 8; }

}  // namespace edgewise
