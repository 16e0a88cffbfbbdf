// The table of kernels for the instruction set in use. Filled once at start; ops call through it.
#pragma once

#include <string>
#include <vector>

#include "attention.h"
#include "elementwise.h"
#include "linear.h"

namespace edgewise {

struct Kernels {
    const char* isa;  // "generic", "avx2"
    Layout layout;    // the layout this ISA's linear kernels are written for (generic runs all)
    // linear.h
    QuantizeFn quantize;
    LinearQuantizedFn linear_quantized;
    LinearFloatFn linear_float;
    // elementwise.h
    RmsNormFn rms_norm;
    LayerNormFn layer_norm;
    GatedActivationFn gated_activation;
    ActivationFn activation;
    AddFn add;
    SoftCapFn soft_cap;
    RopeTableFn rope_table;
    RopeFn rope;
    // attention.h
    KvWriteFn kv_write;
    AttentionFn attention;
    AttentionFoldFn attention_fold;
    AttentionFinishFn attention_finish;
};

const Kernels& generic_kernels();
std::vector<std::string> available_isas();           // best first, on this machine
const Kernels& kernels_for(const std::string& isa);  // "auto" or a name; throws std::invalid_argument

}  // namespace edgewise
