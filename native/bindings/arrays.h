// Arrays from Python, taken as they are (no copies, no conversions) or refused with a ValueError that names
// the argument.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace edgewise {

namespace nb = nanobind;

template <class T, size_t Dims>
using Array = nb::ndarray<T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;

template <class T>
constexpr const char* dtype_name() {
    if constexpr (std::is_same_v<T, float>) return "float32";
    if constexpr (std::is_same_v<T, double>) return "float64";
    if constexpr (std::is_same_v<T, int32_t>) return "int32";
    if constexpr (std::is_same_v<T, uint8_t>) return "uint8";
}

template <class T, size_t Dims>
Array<const T, Dims> array_of(nb::handle object, const char* name) {
    Array<const T, Dims> array;
    if (!nb::try_cast(object, array, false)) {
        throw std::invalid_argument(std::string(name) + " must be a C-contiguous " + dtype_name<T>() +
                                    " array of " + std::to_string(Dims) +
                                    (Dims == 1 ? " dimension" : " dimensions"));
    }
    return array;
}

// A writable f32 array.
template <size_t Dims>
Array<float, Dims> writable_of(nb::handle object, const char* name) {
    Array<float, Dims> array;
    if (!nb::try_cast(object, array, false)) {
        throw std::invalid_argument(std::string(name) + " must be a writable C-contiguous float32 array of " +
                                    std::to_string(Dims) + (Dims == 1 ? " dimension" : " dimensions"));
    }
    return array;
}

template <class T>
std::vector<T> vector_of(nb::handle object, const char* name) {
    auto array = array_of<T, 1>(object, name);
    return {array.data(), array.data() + array.shape(0)};
}

// None: empty.
inline std::vector<float> optional_vector_of(nb::handle object, const char* name) {
    return object.is_none() ? std::vector<float>{} : vector_of<float>(object, name);
}

template <class Value>
Value choice_of(const std::string& name, const char* what,
                std::initializer_list<std::pair<const char*, Value>> choices) {
    std::string known;
    for (const auto& [choice, value] : choices) {
        if (name == choice) return value;
        known += (known.empty() ? "" : ", ") + std::string(choice);
    }
    throw std::invalid_argument("unknown " + std::string(what) + " '" + name + "'; there are: " + known);
}

}  // namespace edgewise
