// The words Python uses for enumerations.
#pragma once

#include "../ops_attention.h"
#include "arrays.h"

namespace edgewise {

inline Activation activation_of(const std::string& name) {
    return choice_of<Activation>(name, "activation",
                                 {{"silu", Activation::Silu},
                                  {"gelu_tanh", Activation::GeluTanh},
                                  {"gelu", Activation::Gelu},
                                  {"relu2", Activation::Relu2}});
}

inline NormKind norm_kind_of(const std::string& name) {
    return choice_of<NormKind>(name, "norm", {{"rms", NormKind::Rms}, {"layer", NormKind::Layer}});
}

inline AttentionKind attention_kind_of(const std::string& name) {
    return choice_of<AttentionKind>(name, "attention kind",
                                    {{"full", AttentionKind::Full},
                                     {"sliding", AttentionKind::Sliding},
                                     {"chunked", AttentionKind::Chunked}});
}

inline bool interleaved_of(const std::string& name) {
    return choice_of<bool>(name, "pairing", {{"half", false}, {"interleaved", true}});
}

}  // namespace edgewise
