#include "dispatch.h"

#include <algorithm>
#include <stdexcept>

namespace edgewise {

namespace {

#define EDGEWISE_KERNELS(isa)                                                                          \
    isa::quantize, isa::linear_quantized, isa::linear_float, isa::rms_norm, isa::layer_norm,           \
        isa::gated_activation, isa::activation, isa::add, isa::soft_cap, isa::rope_table, isa::rope,   \
        isa::kv_write, isa::attention, isa::attention_fold, isa::attention_finish, isa::multiply_loop, \
        isa::read_loop

constexpr Kernels kGeneric = {"generic", Layout::R8, EDGEWISE_KERNELS(generic)};

#if EDGEWISE_HAVE_AVX2
constexpr Kernels kAvx2 = {"avx2", Layout::R8, EDGEWISE_KERNELS(avx2)};

// The instructions of x86-64-v3, which native/avx2 is compiled for. The compiler's support code also asks
// whether the system saves the wide registers.
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt");
}
#endif

#undef EDGEWISE_KERNELS

std::vector<const Kernels*> usable_kernels() {
    std::vector<const Kernels*> usable;
#if EDGEWISE_HAVE_AVX2
    if (has_avx2()) usable.push_back(&kAvx2);
#endif
    usable.push_back(&kGeneric);
    return usable;
}

std::string joined(const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
}

}  // namespace

const Kernels& generic_kernels() { return kGeneric; }

std::vector<std::string> available_isas() {
    std::vector<std::string> names;
    for (const Kernels* kernels : usable_kernels()) names.emplace_back(kernels->isa);
    return names;
}

const Kernels& kernels_for(const std::string& isa) {
    std::vector<const Kernels*> usable = usable_kernels();
    if (isa == "auto") return *usable.front();
    for (const Kernels* kernels : usable) {
        if (isa == kernels->isa) return *kernels;
    }
    throw std::invalid_argument("instruction set '" + isa + "' is not available here; there are: auto, " +
                                joined(available_isas()));
}

}  // namespace edgewise
