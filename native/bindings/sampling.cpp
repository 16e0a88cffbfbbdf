// The door to sampling: a batch of rows in, choices into arrays of the caller. Shapes and ranges are checked
// here; what the values mean is in sampling.h.
#include "sampling.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace nb = nanobind;

namespace edgewise {
namespace {

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ragged = std::optional<std::pair<Vector<const int64_t>, Vector<const int32_t>>>;  // starts [R + 1], ids

// One element of the array `rows`; the NumPy type in kernels/sampling.py has the same fields.
struct RowRecord {
    float temperature, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty;
    int32_t top_k, num_logprobs, forced, allowed_row;
    uint64_t seed, counter;
};
static_assert(sizeof(RowRecord) == 56 && sizeof(SampleChoice) == 12);

void require(bool ok, const std::string& what) {
    if (!ok) throw std::invalid_argument("sample: " + what);
}

template <class T, class Array>
T* records(const Array& array, size_t rows, const char* name) {
    require(array.shape(0) == rows && array.shape(1) == sizeof(T),
            std::string(name) + " has the wrong shape");
    require(reinterpret_cast<uintptr_t>(array.data()) % alignof(T) == 0,
            std::string(name) + " is not aligned");
    return reinterpret_cast<T*>(array.data());
}

void check_starts(const Vector<const int64_t>& starts, size_t rows, size_t num_ids, const char* name) {
    require(starts.shape(0) == rows + 1, std::string(name) + ": starts need one entry more than rows");
    const int64_t* s = starts.data();
    bool ascends = s[0] >= 0 && s[rows] <= static_cast<int64_t>(num_ids);
    for (size_t r = 0; r < rows; ++r) ascends = ascends && s[r] <= s[r + 1];
    require(ascends, std::string(name) + ": starts must ascend within the ids");
}

template <class T>
std::span<const T> slice(const T* values, const Vector<const int64_t>& starts, size_t row) {
    const int64_t* s = starts.data() + row;
    return {values + s[0], static_cast<size_t>(s[1] - s[0])};
}

std::span<const int32_t> slice(const Ragged& lists, size_t row) {
    return lists ? slice(lists->second.data(), lists->first, row) : std::span<const int32_t>{};
}

struct Batch {
    size_t num_rows;
    int64_t vocab;
    const RowRecord* rows;
    Ragged prompt, output, banned, bias;
    std::optional<Vector<const float>> bias_values;
    std::optional<Matrix<const uint32_t>> allowed;

    void check() const {
        require(vocab > 0 && vocab < INT32_MAX, "logits need at least one column");
        for (auto [lists, name] :
             {std::pair{&prompt, "prompt"}, {&output, "output"}, {&banned, "banned"}, {&bias, "bias"}}) {
            if (*lists) check_starts((*lists)->first, num_rows, (*lists)->second.shape(0), name);
        }
        require(!bias || (bias_values && bias_values->shape(0) == bias->second.shape(0)),
                "bias needs a value an id");
        require(!allowed || static_cast<int64_t>(allowed->shape(1)) * 32 >= vocab,
                "allowed needs a bit a token");
        for (size_t r = 0; r < num_rows; ++r) check(rows[r], "row " + std::to_string(r) + ": ");
    }

    void check(const RowRecord& row, const std::string& where) const {
        require(row.temperature >= 0.0f, where + "temperature must be at least 0");
        require(row.top_p > 0.0f, where + "top_p must be above 0");
        require(row.min_p >= 0.0f && row.min_p <= 1.0f, where + "min_p must be from 0 to 1");
        require(row.repetition_penalty > 0.0f, where + "repetition_penalty must be above 0");
        require(row.top_k >= 0, where + "top_k must be at least 0");
        require(row.forced < vocab, where + "the forced id is outside the vocabulary");
        int32_t masks = allowed ? static_cast<int32_t>(allowed->shape(0)) : 0;
        require(row.allowed_row < masks, where + "there is no such row of allowed");
    }

    SampleRow row(size_t r) const {
        const RowRecord& record = rows[r];
        SampleRow row;
        row.temperature = record.temperature;
        row.top_p = record.top_p;
        row.top_k = record.top_k;
        row.min_p = record.min_p;
        row.repetition_penalty = record.repetition_penalty;
        row.frequency_penalty = record.frequency_penalty;
        row.presence_penalty = record.presence_penalty;
        row.prompt = slice(prompt, r);
        row.output = slice(output, r);
        row.banned = slice(banned, r);
        row.bias_ids = slice(bias, r);
        if (bias) row.bias_values = slice(bias_values->data(), bias->first, r);
        if (record.allowed_row >= 0) row.allowed = allowed->data() + record.allowed_row * allowed->shape(1);
        row.seed = record.seed;
        row.counter = record.counter;
        row.forced = record.forced;
        row.num_logprobs = record.num_logprobs;
        return row;
    }
};

void sample(Sampler& sampler, const Matrix<float>& logits, const Matrix<const uint8_t>& rows,
            const Ragged& prompt, const Ragged& output, const Ragged& banned, const Ragged& bias,
            const std::optional<Vector<const float>>& bias_values,
            const std::optional<Matrix<const uint32_t>>& allowed, const Matrix<uint8_t>& choices,
            const Vector<const int64_t>& top_starts, const Vector<int32_t>& top_ids,
            const Vector<float>& top_logprobs) {
    size_t num_rows = logits.shape(0);
    const RowRecord* row_records = records<const RowRecord>(rows, num_rows, "rows");
    Batch batch{num_rows,    static_cast<int64_t>(logits.shape(1)),
                row_records, prompt,
                output,      banned,
                bias,        bias_values,
                allowed};
    batch.check();
    SampleChoice* choice = records<SampleChoice>(choices, num_rows, "choices");
    check_starts(top_starts, num_rows, std::min(top_ids.shape(0), top_logprobs.shape(0)), "top");
    const int64_t* tops = top_starts.data();
    for (size_t r = 0; r < num_rows; ++r) {
        require(tops[r + 1] - tops[r] == top_count(row_records[r].num_logprobs, batch.vocab),
                "top_starts do not fit num_logprobs");
    }
    nb::gil_scoped_release released;
    for (size_t r = 0; r < num_rows; ++r) {
        choice[r] = sampler.sample(batch.row(r), logits.data() + r * batch.vocab, batch.vocab,
                                   top_ids.data() + tops[r], top_logprobs.data() + tops[r]);
    }
}

}  // namespace

void bind_sampling(nb::module_& m) {
    nb::class_<Sampler>(m, "Sampler")
        .def(nb::init<const std::string&>(), nb::arg("isa") = "auto")
        .def("sample", &sample, nb::arg("logits").noconvert(), nb::arg("rows").noconvert(),
             nb::arg("prompt").none(), nb::arg("output").none(), nb::arg("banned").none(),
             nb::arg("bias").none(), nb::arg("bias_values").noconvert().none(),
             nb::arg("allowed").noconvert().none(), nb::arg("choices").noconvert(),
             nb::arg("top_starts").noconvert(), nb::arg("top_ids").noconvert(),
             nb::arg("top_logprobs").noconvert());
    m.def("sample_count", &top_count, nb::arg("num_logprobs"), nb::arg("vocab"));
    m.def("sample_uniform", &uniform, nb::arg("seed"), nb::arg("counter"));
}

}  // namespace edgewise
