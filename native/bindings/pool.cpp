// Doors to the pool, the KV cache and the probes.
#include "../pool.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "../dispatch.h"
#include "../kv_cache.h"
#include "../probe.h"
#include "arrays.h"

namespace edgewise {

namespace {

using namespace nb::literals;

using Shapes = std::vector<std::tuple<int64_t, int64_t, int64_t>>;

void make_cache(KvCache* place, const Shapes& layers, int64_t num_blocks) {
    std::vector<KvShape> shapes;
    for (const auto& [kv_heads, key_dim, value_dim] : layers)
        shapes.push_back({kv_heads, key_dim, value_dim});
    new (place) KvCache(shapes, num_blocks);
}

void check_block(const KvCache& cache, int64_t block) {
    if (block < 0 || block >= cache.num_blocks()) {
        throw std::invalid_argument("there is no block " + std::to_string(block) + "; the cache has " +
                                    std::to_string(cache.num_blocks()));
    }
}

void copy_blocks(KvCache& cache, nb::object sources, nb::object targets) {
    auto from = array_of<int32_t, 1>(sources, "sources"), to = array_of<int32_t, 1>(targets, "targets");
    if (from.shape(0) != to.shape(0)) throw std::invalid_argument("sources and targets differ in length");
    for (size_t i = 0; i < from.shape(0); i++) {
        check_block(cache, from.data()[i]);
        check_block(cache, to.data()[i]);
    }
    nb::gil_scoped_release release;
    for (size_t i = 0; i < from.shape(0); i++) cache.copy_block(from.data()[i], to.data()[i]);
}

nb::bytes export_block(const KvCache& cache, int64_t block) {
    check_block(cache, block);
    auto bytes = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, cache.bytes_per_block()));
    if (!bytes.is_valid()) nb::raise_python_error();
    cache.export_block(block, reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(bytes.ptr())));
    return bytes;
}

void import_block(KvCache& cache, int64_t block, nb::bytes bytes) {
    check_block(cache, block);
    if (static_cast<int64_t>(bytes.size()) != cache.bytes_per_block()) {
        throw std::invalid_argument("a block has " + std::to_string(cache.bytes_per_block()) +
                                    " bytes, got " + std::to_string(bytes.size()));
    }
    cache.import_block(block, static_cast<const uint8_t*>(bytes.data()));
}

}  // namespace

void bind_pool(nb::module_& m) {
    nb::class_<Pool>(m, "Pool", "A team of native threads; the thread that runs a step is one of them.")
        .def(nb::init<int>(), "threads"_a)
        .def_prop_ro("threads", &Pool::threads)
        .def("close", &Pool::close, nb::call_guard<nb::gil_scoped_release>(),
             "End the threads, after a region in progress. Further use raises RuntimeError. Idempotent.");

    nb::class_<KvCache>(m, "KvCache", "Keys and values of all layers in blocks of 32 tokens, float16.")
        .def("__init__", &make_cache, "layers"_a, "num_blocks"_a)
        .def_prop_ro("num_blocks", &KvCache::num_blocks)
        .def_prop_ro("bytes_per_block", &KvCache::bytes_per_block)
        .def("copy_blocks", &copy_blocks, "sources"_a, "targets"_a,
             "Copy block sources[i] to targets[i], in order (i32[N] each).")
        .def("export_block", &export_block, "block"_a, "The block's bytes, every layer's keys then values.")
        .def("import_block", &import_block, "block"_a, "data"_a);

    m.def(
        "read_bandwidth",
        [](Pool& pool, int64_t bytes, double seconds) {
            return read_bandwidth(pool, kernels_for("auto"), bytes, seconds);
        },
        "pool"_a, "bytes"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
        "GB/s of all threads reading one buffer of `bytes` over and over.");
    m.def(
        "int8_peak", [](Pool& pool, double seconds) { return int8_peak(pool, kernels_for("auto"), seconds); },
        "pool"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
        "GOP/s (1e9 multiplies and adds) of all threads in the fastest int8 loop on registers.");
}

}  // namespace edgewise
