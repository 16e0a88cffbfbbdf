// The table of kernels for the instruction set in use. Filled once at start; ops call through it.
//
// Every folder named after an instruction set defines the functions of its namespace below. Such a file keeps
// all else of its own `static`: an inline function shared with other files could be linked from the copy that
// was compiled for the newer instruction set.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "attention.h"
#include "elementwise.h"
#include "linear.h"
#include "probe.h"

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
    // probe.h
    MultiplyLoopFn multiply_loop;
    ReadLoopFn read_loop;
};

template <class Pointer>
using Signature = std::remove_pointer_t<Pointer>;

#define EDGEWISE_KERNELS_OF_AN_ISA                 \
    Signature<QuantizeFn> quantize;                \
    Signature<LinearQuantizedFn> linear_quantized; \
    Signature<LinearFloatFn> linear_float;         \
    Signature<RmsNormFn> rms_norm;                 \
    Signature<LayerNormFn> layer_norm;             \
    Signature<GatedActivationFn> gated_activation; \
    Signature<ActivationFn> activation;            \
    Signature<AddFn> add;                          \
    Signature<SoftCapFn> soft_cap;                 \
    Signature<RopeTableFn> rope_table;             \
    Signature<RopeFn> rope;                        \
    Signature<KvWriteFn> kv_write;                 \
    Signature<AttentionFn> attention;              \
    Signature<AttentionFoldFn> attention_fold;     \
    Signature<AttentionFinishFn> attention_finish; \
    Signature<MultiplyLoopFn> multiply_loop;       \
    Signature<ReadLoopFn> read_loop;

namespace generic {
EDGEWISE_KERNELS_OF_AN_ISA
}
#if EDGEWISE_HAVE_AVX2
namespace avx2 {
EDGEWISE_KERNELS_OF_AN_ISA
}
#endif
#undef EDGEWISE_KERNELS_OF_AN_ISA

const Kernels& generic_kernels();
std::vector<std::string> available_isas();           // best first, on this machine
const Kernels& kernels_for(const std::string& isa);  // "auto" or a name; throws std::invalid_argument

}  // namespace edgewise
