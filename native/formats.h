// What the formats of types.h are made of: GGUF block sizes and packed geometry.
//
// Functions are `static`: a shared copy compiled with AVX2 could otherwise be linked into code that runs
// without it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "numeric.h"
#include "types.h"

namespace edgewise {

// A GGUF block of `cols` columns of one row takes `bytes`. A quantised number is dw * (code - offset) [+ m],
// with codes of `bits` bits; `offset` is what makes an unsigned code signed (8-bit codes are signed already).
struct FormatTraits {
    Format format;
    const char* name;
    int64_t cols, bytes;
    int bits;
    int offset;
    bool minimum;
};

inline constexpr FormatTraits kFormats[] = {
    {Format::F32, "F32", 1, 4, 32, 0, false},      {Format::F16, "F16", 1, 2, 16, 0, false},
    {Format::BF16, "BF16", 1, 2, 16, 0, false},    {Format::Q4_0, "Q4_0", 32, 18, 4, 8, false},
    {Format::Q4_1, "Q4_1", 32, 20, 4, 0, true},    {Format::Q5_0, "Q5_0", 32, 22, 5, 16, false},
    {Format::Q5_1, "Q5_1", 32, 24, 5, 0, true},    {Format::Q8_0, "Q8_0", 32, 34, 8, 0, false},
    {Format::Q4_K, "Q4_K", 256, 144, 4, 0, true},  {Format::Q5_K, "Q5_K", 256, 176, 5, 0, true},
    {Format::Q6_K, "Q6_K", 256, 210, 6, 32, false}};

[[maybe_unused]] static constexpr const FormatTraits& traits(Format format) {
    for (const FormatTraits& t : kFormats)
        if (t.format == format) return t;
    throw std::invalid_argument("unknown weight format");
}

// Packed geometry. Packing permutes bits and adds none: `lanes` rows of one GGUF block become one packed
// block of lanes * bytes. Row blocks follow each other, within a row block the packed blocks ascend in k, and
// within a block everything a kernel needs comes in the order it needs it:
//   d       f16 [lanes]
//   minima  f16 [lanes]                       formats with a minimum (m, or dmin of the _K formats)
//   scales  Q4_K, Q5_K: 6-bit values v = (g * 2 + is_min) * lanes + r, 16 * lanes of them:
//             low nibbles u8 [8 * lanes]      byte i: value i | value (i + 8 * lanes) << 4
//             high pairs  u8 [4 * lanes]      byte i: bits 2p = value (p * 4 * lanes + i) >> 4, p = 0..3
//           Q6_K: int8 [g][lanes][2]          the two halves of 16 of a group side by side
//   groups  one after the other, 32 columns each; quad q is columns 4q..4q+3, one byte b a column:
//             4..6 bits: nibbles u8 [4][lanes][4]   vector j: quad j | quad (j + 4) << 4
//             5 bits:    high u8 [lanes][4]         bit q: bit 4 of quad q
//             6 bits:    high u8 [2][lanes][4]      vector q / 4, bits 2 * (q % 4): bits 4 and 5 of quad q
//             8 bits:    codes int8 [8][lanes][4]
// Float formats have no blocks: element [row block][k][lanes].
struct PackedBlock {
    int64_t minima, scales, groups, group_bytes, high, bytes;
};

[[maybe_unused]] static constexpr PackedBlock packed_block(Format format, int64_t lanes) {
    const FormatTraits& t = traits(format);
    const bool nibbles = t.bits < 8;
    PackedBlock p{};
    p.minima = 2 * lanes;
    p.scales = p.minima + (t.minimum ? 2 * lanes : 0);
    p.groups = p.scales + (t.cols == 32 ? 0 : t.minimum ? 12 * lanes : 16 * lanes);
    p.high = 16 * lanes;
    p.group_bytes = (nibbles ? 4 * t.bits : 32) * lanes;
    p.bytes = t.bytes * lanes;
    return p;
}

[[maybe_unused]] static inline float bfloat_to_float(uint16_t h) {
    return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

[[maybe_unused]] static inline uint16_t load_u16(const uint8_t* p) {
    uint16_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

}  // namespace edgewise
