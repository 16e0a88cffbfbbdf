#include "kv_cache.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace edgewise {

namespace {

void check(const KvShape& shape, size_t index) {
    bool good = shape.kv_heads > 0 && shape.key_dim > 0 && shape.value_dim > 0 && shape.key_dim % 8 == 0 &&
                shape.value_dim % 8 == 0;
    if (!good) {
        throw std::invalid_argument(
            "layer " + std::to_string(index) +
            ": kv_heads, key_dim and value_dim must be positive and the two dimensions multiples of 8");
    }
}

constexpr int64_t kBytesPerNumber = 2;

}  // namespace

KvCache::KvCache(const std::vector<KvShape>& layers, int64_t num_blocks) : num_blocks_(num_blocks) {
    if (layers.empty()) throw std::invalid_argument("a KV cache needs at least one layer");
    if (num_blocks < 1) throw std::invalid_argument("num_blocks must be positive");
    for (size_t i = 0; i < layers.size(); i++) {
        check(layers[i], i);
        for (int64_t dim : {layers[i].key_dim, layers[i].value_dim}) {
            parts_.push_back({nullptr, layers[i].kv_heads * dim * kKvBlock * kBytesPerNumber});
            bytes_per_block_ += parts_.back().bytes;
        }
    }
    memory_ =
        Mapping(bytes_per_block_ * num_blocks);  // a block is a multiple of 512 bytes: parts stay aligned
    uint8_t* next = memory_.data();
    for (Part& part : parts_) {
        part.data = next;
        next += part.bytes * num_blocks;
    }
    for (size_t i = 0; i < layers.size(); i++) {
        layers_.push_back({reinterpret_cast<uint16_t*>(parts_[2 * i].data),
                           reinterpret_cast<uint16_t*>(parts_[2 * i + 1].data), layers[i].kv_heads,
                           layers[i].key_dim, layers[i].value_dim});
    }
}

void KvCache::export_block(int64_t block, uint8_t* bytes) const {
    for (const Part& part : parts_) {
        std::memcpy(bytes, part.data + block * part.bytes, static_cast<size_t>(part.bytes));
        bytes += part.bytes;
    }
}

void KvCache::import_block(int64_t block, const uint8_t* bytes) {
    for (const Part& part : parts_) {
        std::memcpy(part.data + block * part.bytes, bytes, static_cast<size_t>(part.bytes));
        bytes += part.bytes;
    }
}

void KvCache::copy_block(int64_t source, int64_t target) {
    for (const Part& part : parts_) {
        std::memmove(part.data + target * part.bytes, part.data + source * part.bytes,
                     static_cast<size_t>(part.bytes));
    }
}

}  // namespace edgewise
