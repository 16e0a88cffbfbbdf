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

// Codes [first, first + count) of a block lie one a byte in the source: nibbles from byte `low` on and, in
// the _K formats, high bits from byte `high` on, each moved up by its shift.
struct Run {
    int64_t first, count, low, high;
    int low_shift, high_shift;
};

int64_t run_count(Format format) { return is_k(format) ? 8 : 2; }

Run source_run(Format format, int64_t i) {
    const SourceOffsets at = source_offsets(format);
    const int odd = static_cast<int>(i % 2), quarter = static_cast<int>(i % 4);
    if (!is_k(format)) return {i * 16, 16, at.codes, 0, 4 * odd, 0};
    if (format != Format::Q6_K)
        return {i * 32, 32, at.codes + i / 2 * 32, at.high, 4 * odd, static_cast<int>(i)};
    return {i * 32, 32, at.codes + i / 4 * 64 + 32 * odd, at.high + i / 4 * 32, quarter / 2 * 4, 2 * quarter};
}

int high_mask(const FormatTraits& t) { return (1 << (t.bits - 4)) - 1; }

void read_run(const Run& run, int mask, const uint8_t* source, uint8_t* codes) {
    for (int64_t k = 0; k < run.count; ++k) codes[k] = source[run.low + k] >> run.low_shift & 15;
    if (mask == 0) return;
    for (int64_t k = 0; k < run.count; ++k)
        codes[k] |= static_cast<uint8_t>((source[run.high + k] >> run.high_shift & mask) << 4);
}

void write_run(const Run& run, int mask, const uint8_t* codes, uint8_t* source) {
    for (int64_t k = 0; k < run.count; ++k)
        source[run.low + k] |= static_cast<uint8_t>((codes[k] & 15) << run.low_shift);
    if (mask == 0) return;
    for (int64_t k = 0; k < run.count; ++k)
        source[run.high + k] |= static_cast<uint8_t>(codes[k] >> 4 << run.high_shift);
}

// Q5_0 and Q5_1 keep the high bits of their 32 codes as one little-endian number.
void read_bits(const uint8_t* source, uint8_t* codes) {
    uint32_t bits;
    std::memcpy(&bits, source, sizeof bits);
    for (int k = 0; k < 32; ++k) codes[k] |= static_cast<uint8_t>((bits >> k & 1) << 4);
}

void write_bits(const uint8_t* codes, uint8_t* source) {
    uint32_t bits = 0;
    for (int k = 0; k < 32; ++k) bits |= static_cast<uint32_t>(codes[k] >> 4) << k;
    std::memcpy(source, &bits, sizeof bits);
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

struct BitPlace {
    int64_t byte;
    int shift;
};

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

uint32_t load_quad(const uint8_t* p) {
    uint32_t quad;
    std::memcpy(&quad, p, sizeof quad);
    return quad;
}

void store_quad(uint8_t* p, uint32_t quad) { std::memcpy(p, &quad, sizeof quad); }

// Where quad q of a lane has its high bits: a vector of the group's high bytes and a shift.
struct HighPlace {
    int64_t vector;
    int shift;
};

HighPlace packed_high(int bits, int q) {
    if (bits == 5) return {0, q};
    return {q / 4, q % 4 * 2};
}

// Four codes at a time: no bit moves from one byte of a quad to the next.
constexpr uint32_t kEachByte = 0x01010101;

void load_codes(const FormatTraits& t, int64_t lanes, int64_t lane, const uint8_t* group, uint8_t* codes) {
    const auto at = [&](int64_t vector) { return group + (vector * lanes + lane) * 4; };
    for (int q = 0; q < 8; ++q) {
        if (t.bits == 8) {
            store_quad(codes + 4 * q, load_quad(at(q)));
            continue;
        }
        uint32_t quad = load_quad(at(q % 4)) >> (q < 4 ? 0 : 4) & 15 * kEachByte;
        if (t.bits > 4) {
            const HighPlace high = packed_high(t.bits, q);
            const auto mask = static_cast<uint32_t>(high_mask(t)) * kEachByte;
            quad |= (load_quad(at(4 + high.vector)) >> high.shift & mask) << 4;
        }
        store_quad(codes + 4 * q, quad);
    }
}

void store_codes(const FormatTraits& t, int64_t lanes, int64_t lane, const uint8_t* codes, uint8_t* group) {
    const auto at = [&](int64_t vector) { return group + (vector * lanes + lane) * 4; };
    for (int q = 0; q < 8; ++q) {
        const uint32_t quad = load_quad(codes + 4 * q);
        if (t.bits == 8) {
            store_quad(at(q), quad);
            continue;
        }
        store_quad(at(q % 4), load_quad(at(q % 4)) | (quad & 15 * kEachByte) << (q < 4 ? 0 : 4));
        if (t.bits > 4) {
            const HighPlace high = packed_high(t.bits, q);
            uint8_t* p = at(4 + high.vector);
            store_quad(p, load_quad(p) | (quad >> 4 & 15 * kEachByte) << high.shift);
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
    const int mask = is_k(format) ? high_mask(t) : 0;
    for (int64_t i = 0; i < run_count(format); ++i) {
        const Run run = source_run(format, i);
        read_run(run, mask, source, out.codes + run.first);
    }
    if (!is_k(format) && t.bits == 5) read_bits(source + at.high, out.codes);
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
    const int mask = is_k(format) ? high_mask(t) : 0;
    for (int64_t i = 0; i < run_count(format); ++i) {
        const Run run = source_run(format, i);
        write_run(run, mask, block.codes + run.first, source);
    }
    if (!is_k(format) && t.bits == 5) write_bits(block.codes, source + at.high);
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
