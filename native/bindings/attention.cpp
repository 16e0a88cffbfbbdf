// Doors to the attention kernels for tests: one query tile against a cache, folded over all its partitions on
// the calling thread.
#include "attention.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.h"

namespace nb = nanobind;

namespace edgewise {
namespace {

template <class T, size_t N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Keys = Array<uint16_t, 4>;
using Values = Array<uint16_t, 4>;

void require(bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(std::string("attention: ") + what);
}

KvLayer layer_of(const Keys& keys, const Values& values) {
    KvLayer kv{keys.data(), values.data(), static_cast<int64_t>(keys.shape(1)),
               static_cast<int64_t>(keys.shape(2)), static_cast<int64_t>(values.shape(3))};
    require(keys.shape(0) == values.shape(0) && keys.shape(1) == values.shape(1),
            "keys and values differ in blocks or heads");
    require(keys.shape(3) == kKvBlock && values.shape(2) == kKvBlock, "a block has 32 tokens");
    require(kv.key_dim % 8 == 0 && kv.value_dim % 8 == 0, "head sizes are multiples of 8");
    return kv;
}

void check_table(const Array<const int32_t, 1>& table, size_t num_blocks, int64_t num_keys) {
    require(static_cast<int64_t>(table.shape(0)) * kKvBlock >= num_keys, "the block table is too short");
    for (size_t i = 0; i < table.shape(0); ++i) {
        require(table.data()[i] >= 0 && table.data()[i] < static_cast<int64_t>(num_blocks),
                "a block outside the cache");
    }
}

// The aligned scratch and the partial results of one tile.
struct Partial {
    std::vector<float> storage, max, sum, acc;
    float* scratch;

    Partial(int64_t vectors, int64_t group, const KvLayer& kv)
        : storage(attention_scratch_floats(group, kv.key_dim, kv.value_dim) + 16),
          max(vectors),
          sum(vectors),
          acc(vectors * kv.value_dim) {
        auto address = reinterpret_cast<uintptr_t>(storage.data());
        scratch = reinterpret_cast<float*>((address + 63) / 64 * 64);
    }
};

void attend_head(const Kernels& kernels, AttentionArgs& args, Partial& partial, Partial& run) {
    const int64_t vectors = args.rows * args.group;
    args.max = partial.max.data();
    args.sum = partial.sum.data();
    args.acc = partial.acc.data();
    args.scratch = partial.scratch;
    std::fill(run.max.begin(), run.max.end(), -std::numeric_limits<float>::infinity());
    std::fill(run.sum.begin(), run.sum.end(), 0.0f);
    std::fill(run.acc.begin(), run.acc.end(), 0.0f);
    for (args.partition = 0; args.partition * kPartition < args.first_index + args.rows; ++args.partition) {
        kernels.attention(args);
        kernels.attention_fold(vectors, args.kv.value_dim, args.max, args.sum, args.acc, run.max.data(),
                               run.sum.data(), run.acc.data());
    }
}

void attention(const std::string& isa, const Array<const float, 3>& q, const Keys& keys, const Values& values,
               const Array<const int32_t, 1>& block_table, int64_t first_index, float scale, float soft_cap,
               int64_t window, int64_t chunk, const std::optional<Array<const float, 1>>& sinks,
               const Array<float, 3>& out) {
    const Kernels& kernels = kernels_for(isa);
    AttentionArgs args;
    args.kv = layer_of(keys, values);
    const int64_t rows = q.shape(0), heads = q.shape(1);
    require(rows >= 1 && rows <= kMaxQueryRows && heads % args.kv.kv_heads == 0, "rows or heads do not fit");
    require(static_cast<int64_t>(q.shape(2)) == args.kv.key_dim, "q and keys differ in head size");
    require(out.shape(0) == q.shape(0) && out.shape(1) == q.shape(1) &&
                static_cast<int64_t>(out.shape(2)) == args.kv.value_dim,
            "out has the wrong shape");
    require(!sinks || static_cast<int64_t>(sinks->shape(0)) == heads, "one sink a head");
    require(first_index >= 0 && soft_cap >= 0.0f && window >= 0 && chunk >= 0, "a parameter is negative");
    check_table(block_table, keys.shape(0), first_index + rows);
    args.block_table = block_table.data();
    args.q_stride = heads * args.kv.key_dim;
    args.rows = rows;
    args.group = heads / args.kv.kv_heads;
    args.first_index = first_index;
    args.scale = scale;
    args.soft_cap = soft_cap;
    args.window = window;
    args.chunk = chunk;
    nb::gil_scoped_release released;
    Partial partial(rows * args.group, args.group, args.kv), run(rows * args.group, args.group, args.kv);
    for (args.kv_head = 0; args.kv_head < args.kv.kv_heads; ++args.kv_head) {
        const int64_t head = args.kv_head * args.group;
        args.q = q.data() + head * args.kv.key_dim;
        attend_head(kernels, args, partial, run);
        kernels.attention_finish(rows, args.group, args.kv.value_dim, sinks ? sinks->data() + head : nullptr,
                                 run.max.data(), run.sum.data(), run.acc.data(),
                                 out.data() + head * args.kv.value_dim, heads * args.kv.value_dim);
    }
}

void kv_write(const std::string& isa, const Keys& keys, const Values& values,
              const Array<const int32_t, 1>& block_table, int64_t index, const Array<const float, 2>& k,
              const Array<const float, 2>& v) {
    KvLayer kv = layer_of(keys, values);
    require(index >= 0, "a negative index");
    check_table(block_table, keys.shape(0), index + 1);
    require(static_cast<int64_t>(k.shape(0)) == kv.kv_heads &&
                static_cast<int64_t>(k.shape(1)) == kv.key_dim &&
                static_cast<int64_t>(v.shape(0)) == kv.kv_heads &&
                static_cast<int64_t>(v.shape(1)) == kv.value_dim,
            "k or v has the wrong shape");
    kernels_for(isa).kv_write(kv, block_table.data(), index, k.data(), v.data());
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("attention", &attention, nb::arg("isa"), nb::arg("q").noconvert(), nb::arg("keys").noconvert(),
          nb::arg("values").noconvert(), nb::arg("block_table").noconvert(), nb::arg("first_index"),
          nb::arg("scale"), nb::arg("soft_cap"), nb::arg("window"), nb::arg("chunk"),
          nb::arg("sinks").noconvert().none(), nb::arg("out").noconvert());
    m.def("kv_write", &kv_write, nb::arg("isa"), nb::arg("keys").noconvert(), nb::arg("values").noconvert(),
          nb::arg("block_table").noconvert(), nb::arg("index"), nb::arg("k").noconvert(),
          nb::arg("v").noconvert());
}

}  // namespace edgewise
