// One row's GGUF block with its fields apart: the middle between source bytes and packed bytes.
#pragma once

#include "formats.h"

namespace edgewise {

// `codes` are as stored (unsigned, or int8 for Q8_0). `d` and `m` are f16 bits. Group g has scales[g] and
// minima[g] in Q4_K and Q5_K; in Q6_K the half h of 16 has int8 scales[h]. Other formats have neither.
struct RowBlock {
    uint16_t d = 0, m = 0;
    uint8_t scales[16] = {};
    uint8_t minima[8] = {};
    uint8_t codes[256] = {};
};

void read_source_block(Format format, const uint8_t* source, RowBlock& out);
void write_source_block(Format format, const RowBlock& block, uint8_t* source);

// `packed` is a packed block of `lanes` rows (formats.h); row `lane` of it is read, or written where it is
// zero.
void load_lane(Format format, int64_t lanes, int64_t lane, const uint8_t* packed, RowBlock& out);
void store_lane(Format format, int64_t lanes, int64_t lane, const RowBlock& block, uint8_t* packed);

// Scale and minimum of group g as linear.h has them: dw (d alone for Q6_K, whose sub-scales are integers) and
// m_g.
float group_scale(Format format, const RowBlock& block, int64_t group);
float group_minimum(Format format, const RowBlock& block, int64_t group);

}  // namespace edgewise
