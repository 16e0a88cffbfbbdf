// memory: zeroed pages straight from the kernel, committed as they are first touched.
#pragma once

#include <cstdint>

namespace edgewise {

class Mapping {
  public:
    Mapping() = default;
    explicit Mapping(int64_t bytes);  // page aligned; throws std::bad_alloc
    ~Mapping();
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&& other) noexcept;

    uint8_t* data() const { return data_; }
    int64_t bytes() const { return bytes_; }

    // Asks for huge pages in [offset, offset + bytes), rounded inwards; no effect where the system has none.
    void advise_huge_pages(int64_t offset, int64_t bytes) const;

  private:
    uint8_t* data_ = nullptr;
    int64_t bytes_ = 0;
};

inline constexpr int64_t kAlignment = 64;
inline int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace edgewise
