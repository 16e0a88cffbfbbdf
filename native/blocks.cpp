#include "blocks.h"

namespace edgewise {
namespace {

void put_u16(uint8_t* p, uint16_t value) { std::memcpy(p, &value, sizeof value); }

bool is_k(Format f) { return traits(f).cols == 256; }

// ---- GGUF bytes: a field order per format (ggml's block_* structs) ----

struct SourceOffsets {
    int64_t d, m, scales, high, codes;
};

SourceOffsets source_offsets(Format format) {
    switch (format) {
        case Format::Q4_0:
        case Format::Q8_0:
            return {0, 0, 0, 0, 2};
        case Format::Q4_1:
            return {0, 2, 0, 0, 4};
        case Format::Q5_0:
            return {0, 0, 0, 2, 6};
        case Format::Q5_1:
            return {0, 2, 0, 4, 8};
        case Format::Q4_K:
            return {0, 2, 4, 0, 16};
        case Format::Q5_K:
            return {0, 2, 4, 16, 48};
        case Format::Q6_K:
            return {208, 0, 192, 128, 0};
        default:
            throw std::invalid_argument("a float format has no blocks");
    }
}

// Where code k of a block has its low nibble and its high bits in the source: byte and shift.
struct BitPlace {
    int64_t byte;
    int shift;
};

BitPlace source_nibble(Format format, int64_t k) {
    if (!is_k(format)) return {k % 16, k < 16 ? 0 : 4};
    if (format == Format::Q6_K) return {k / 128 * 64 + k % 64, k % 128 < 64 ? 0 : 4};
    return {k / 64 * 32 + k % 32, k % 64 < 32 ? 0 : 4};
}

BitPlace source_high(Format format, int64_t k) {
    if (!is_k(format)) return {k / 8, static_cast<int>(k % 8)};
    if (format == Format::Q6_K) return {k / 128 * 32 + k % 32, static_cast<int>(k % 128 / 32 * 2)};
    return {k % 32, static_cast<int>(k / 32)};
}

// Q4_K and Q5_K store 8 scales and 8 minima of 6 bits in 12 bytes: the first four whole in bytes 0..3 and
// 4..7, the last four as nibbles in bytes 8..11 with their top bits above the first four.
void read_k_scales(const uint8_t* s, RowBlock& out) {
    for (int g = 0; g < 4; ++g) {
        out.scales[g] = s[g] & 63;
        out.minima[g] = s[g + 4] & 63;
        out.scales[g + 4] = static_cast<uint8_t>((s[g + 8] & 15) | (s[g] >> 6 << 4));
        out.minima[g + 4] = static_cast<uint8_t>((s[g + 8] >> 4) | (s[g + 4] >> 6 << 4));
    }
}

void write_k_scales(const RowBlock& block, uint8_t* s) {
    for (int g = 0; g < 4; ++g) {
        s[g] = static_cast<uint8_t>(block.scales[g] | (block.scales[g + 4] >> 4 << 6));
        s[g + 4] = static_cast<uint8_t>(block.minima[g] | (block.minima[g + 4] >> 4 << 6));
        s[g + 8] = static_cast<uint8_t>((block.scales[g + 4] & 15) | ((block.minima[g + 4] & 15) << 4));
    }
}

// ---- packed bytes: the places formats.h names ----

int64_t packed_nibble_byte(int64_t lanes, int64_t lane, int64_t k) {  // k within the group
    return (k / 4 % 4 * lanes + lane) * 4 + k % 4;
}

BitPlace packed_high(int bits, int64_t lanes, int64_t lane, int64_t k) {
    const int64_t quad = k / 4;
    if (bits == 5) return {lane * 4 + k % 4, static_cast<int>(quad)};
    return {(quad / 4 * lanes + lane) * 4 + k % 4, static_cast<int>(quad % 4 * 2)};
}

// Calls visit(value, low byte, low shift, high byte, high shift) for the 16 six-bit values of a lane.
template <class Visit>
void visit_packed_k_scales(RowBlock& block, int64_t lanes, int64_t lane, Visit visit) {
    for (int64_t g = 0; g < 8; ++g) {
        for (int64_t is_min = 0; is_min < 2; ++is_min) {
            const int64_t v = (g * 2 + is_min) * lanes + lane;
            const BitPlace low{v % (8 * lanes), v < 8 * lanes ? 0 : 4};
            const BitPlace high{8 * lanes + v % (4 * lanes), static_cast<int>(v / (4 * lanes) * 2)};
            visit(is_min ? block.minima[g] : block.scales[g], low, high);
        }
    }
}

void load_codes(const FormatTraits& t, int64_t lanes, int64_t lane, const uint8_t* group, uint8_t* codes) {
    for (int64_t k = 0; k < 32; ++k) {
        if (t.bits == 8) {
            codes[k] = group[(k / 4 * lanes + lane) * 4 + k % 4];
            continue;
        }
        int code = group[packed_nibble_byte(lanes, lane, k)] >> (k < 16 ? 0 : 4) & 15;
        if (t.bits > 4) {
            const BitPlace high = packed_high(t.bits, lanes, lane, k);
            code |= (group[16 * lanes + high.byte] >> high.shift & ((1 << (t.bits - 4)) - 1)) << 4;
        }
        codes[k] = static_cast<uint8_t>(code);
    }
}

void store_codes(const FormatTraits& t, int64_t lanes, int64_t lane, const uint8_t* codes, uint8_t* group) {
    for (int64_t k = 0; k < 32; ++k) {
        if (t.bits == 8) {
            group[(k / 4 * lanes + lane) * 4 + k % 4] = codes[k];
            continue;
        }
        group[packed_nibble_byte(lanes, lane, k)] |=
            static_cast<uint8_t>((codes[k] & 15) << (k < 16 ? 0 : 4));
        if (t.bits > 4) {
            const BitPlace high = packed_high(t.bits, lanes, lane, k);
            group[16 * lanes + high.byte] |= static_cast<uint8_t>(codes[k] >> 4 << high.shift);
        }
    }
}

}  // namespace

void read_source_block(Format format, const uint8_t* source, RowBlock& out) {
    const FormatTraits& t = traits(format);
    const SourceOffsets at = source_offsets(format);
    out.d = load_u16(source + at.d);
    if (t.minimum) out.m = load_u16(source + at.m);
    if (format == Format::Q6_K) std::memcpy(out.scales, source + at.scales, 16);
    if (is_k(format) && t.minimum) read_k_scales(source + at.scales, out);
    if (t.bits == 8) {
        std::memcpy(out.codes, source + at.codes, static_cast<size_t>(t.cols));
        return;
    }
    for (int64_t k = 0; k < t.cols; ++k) {
        const BitPlace low = source_nibble(format, k);
        int code = source[at.codes + low.byte] >> low.shift & 15;
        if (t.bits > 4) {
            const BitPlace high = source_high(format, k);
            code |= (source[at.high + high.byte] >> high.shift & ((1 << (t.bits - 4)) - 1)) << 4;
        }
        out.codes[k] = static_cast<uint8_t>(code);
    }
}

void write_source_block(Format format, const RowBlock& block, uint8_t* source) {
    const FormatTraits& t = traits(format);
    const SourceOffsets at = source_offsets(format);
    std::memset(source, 0, static_cast<size_t>(t.bytes));
    put_u16(source + at.d, block.d);
    if (t.minimum) put_u16(source + at.m, block.m);
    if (format == Format::Q6_K) std::memcpy(source + at.scales, block.scales, 16);
    if (is_k(format) && t.minimum) write_k_scales(block, source + at.scales);
    if (t.bits == 8) {
        std::memcpy(source + at.codes, block.codes, static_cast<size_t>(t.cols));
        return;
    }
    for (int64_t k = 0; k < t.cols; ++k) {
        const BitPlace low = source_nibble(format, k);
        source[at.codes + low.byte] |= static_cast<uint8_t>((block.codes[k] & 15) << low.shift);
        if (t.bits > 4) {
            const BitPlace high = source_high(format, k);
            source[at.high + high.byte] |= static_cast<uint8_t>(block.codes[k] >> 4 << high.shift);
        }
    }
}

void load_lane(Format format, int64_t lanes, int64_t lane, const uint8_t* packed, RowBlock& out) {
    const FormatTraits& t = traits(format);
    const PackedBlock at = packed_block(format, lanes);
    const uint8_t* scales = packed + at.scales;
    out.d = load_u16(packed + 2 * lane);
    if (t.minimum) out.m = load_u16(packed + at.minima + 2 * lane);
    if (format == Format::Q6_K)
        for (int64_t h = 0; h < 16; ++h) out.scales[h] = scales[(h / 2 * lanes + lane) * 2 + h % 2];
    if (is_k(format) && t.minimum)
        visit_packed_k_scales(out, lanes, lane, [&](uint8_t& value, BitPlace low, BitPlace high) {
            value = static_cast<uint8_t>((scales[low.byte] >> low.shift & 15) |
                                         ((scales[high.byte] >> high.shift & 3) << 4));
        });
    for (int64_t g = 0; g < t.cols / 32; ++g)
        load_codes(t, lanes, lane, packed + at.groups + g * at.group_bytes, out.codes + g * 32);
}

void store_lane(Format format, int64_t lanes, int64_t lane, const RowBlock& block, uint8_t* packed) {
    const FormatTraits& t = traits(format);
    const PackedBlock at = packed_block(format, lanes);
    uint8_t* scales = packed + at.scales;
    put_u16(packed + 2 * lane, block.d);
    if (t.minimum) put_u16(packed + at.minima + 2 * lane, block.m);
    if (format == Format::Q6_K)
        for (int64_t h = 0; h < 16; ++h) scales[(h / 2 * lanes + lane) * 2 + h % 2] = block.scales[h];
    if (is_k(format) && t.minimum) {
        RowBlock values = block;
        visit_packed_k_scales(values, lanes, lane, [&](uint8_t value, BitPlace low, BitPlace high) {
            scales[low.byte] |= static_cast<uint8_t>((value & 15) << low.shift);
            scales[high.byte] |= static_cast<uint8_t>(value >> 4 << high.shift);
        });
    }
    for (int64_t g = 0; g < t.cols / 32; ++g)
        store_codes(t, lanes, lane, block.codes + g * 32, packed + at.groups + g * at.group_bytes);
}

float group_scale(Format format, const RowBlock& block, int64_t group) {
    const float d = half_to_float(block.d);
    const bool sub_scales = is_k(format) && format != Format::Q6_K;
    return sub_scales ? d * static_cast<float>(block.scales[group]) : d;
}

float group_minimum(Format format, const RowBlock& block, int64_t group) {
    if (!traits(format).minimum) return 0.0f;
    const float m = half_to_float(block.m);
    return is_k(format) ? -(m * static_cast<float>(block.minima[group])) : m;
}

}  // namespace edgewise
