// kv_cache: the keys and values of all layers in blocks of kKvBlock tokens. Which sequence owns which block
// is the caller's matter.
//
// Layout per layer as attention.h says. Memory is committed when a block is first written.
#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"
#include "memory.h"

namespace edgewise {

struct KvShape {
    int64_t kv_heads = 0;
    int64_t key_dim = 0;    // a multiple of 8
    int64_t value_dim = 0;  // a multiple of 8
};

class KvCache {
  public:
    // Throws std::invalid_argument for shapes that are not positive or not multiples of 8.
    KvCache(const std::vector<KvShape>& layers, int64_t num_blocks);

    int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
    int64_t num_blocks() const { return num_blocks_; }
    int64_t bytes_per_block() const { return bytes_per_block_; }
    const KvLayer& layer(int64_t index) const { return layers_[static_cast<size_t>(index)]; }

    // The block's bytes of every layer, keys then values, in layer order: bytes_per_block() bytes.
    void export_block(int64_t block, uint8_t* bytes) const;
    void import_block(int64_t block, const uint8_t* bytes);
    void copy_block(int64_t source, int64_t target);

  private:
    struct Part {
        uint8_t* data;
        int64_t bytes;  // of one block
    };

    std::vector<KvLayer> layers_;
    std::vector<Part> parts_;  // keys and values of each layer in turn
    int64_t num_blocks_;
    int64_t bytes_per_block_ = 0;
    Mapping memory_;
};

}  // namespace edgewise
