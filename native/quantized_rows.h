// Where a block of up to kTokenBlock tokens lies in the arrays of QuantizedRows (types.h).
#pragma once

#include <algorithm>

#include "types.h"

namespace edgewise {

// Cell (g, t) of the block is g * tokens + t; it owns 32 codes, one scale and two sums.
struct TokenBlock {
    int64_t tokens;
    int8_t* codes;
    float* scales;
    int16_t* sums;
};

[[maybe_unused]] static inline TokenBlock token_block(const QuantizedRows& x, int64_t index) {
    const int64_t first_cell = index * kTokenBlock * x.groups;
    return {std::min(kTokenBlock, x.tokens - index * kTokenBlock), x.codes + first_cell * kGroup,
            x.scales + first_cell, x.sums + first_cell * 2};
}

}  // namespace edgewise
