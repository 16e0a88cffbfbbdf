#include "memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace edgewise {

Mapping::Mapping(int64_t bytes) : bytes_(bytes) {
    if (bytes <= 0) return;
    void* p = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(p);
}

Mapping::~Mapping() {
    if (data_) munmap(data_, static_cast<size_t>(bytes_));
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

void Mapping::advise_huge_pages(int64_t offset, int64_t bytes) const {
#if defined(MADV_HUGEPAGE)
    constexpr int64_t kHugePage = int64_t{2} << 20;
    auto base = reinterpret_cast<uintptr_t>(data_);
    uintptr_t begin = (base + static_cast<uintptr_t>(offset) + kHugePage - 1) / kHugePage * kHugePage;
    uintptr_t end = (base + static_cast<uintptr_t>(offset + bytes)) / kHugePage * kHugePage;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
    (void)offset, (void)bytes;
#endif
}

}  // namespace edgewise
