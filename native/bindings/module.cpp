// The Python module edgewise._native. std::invalid_argument becomes ValueError, std::runtime_error
// RuntimeError.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace edgewise {
void bind_pool(nb::module_& m);
void bind_program(nb::module_& m);
void bind_elementwise(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_sampling(nb::module_& m);
}  // namespace edgewise

NB_MODULE(_native, m) {
    m.doc() = "Native kernels, the thread pool and the step executor.";
    // An engine is usually alive when the interpreter ends; that is no leak worth a report.
    nb::set_leak_warnings(false);
    edgewise::bind_pool(m);
    edgewise::bind_program(m);
    edgewise::bind_elementwise(m);
    edgewise::bind_linear(m);
    edgewise::bind_linear(m);
    edgewise::bind_attention(m);
    edgewise::bind_sampling(m);
}
