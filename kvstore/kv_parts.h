#pragma once

#include <cstdint>
#include <vector>

#include "kvstore/codec/extent_parts.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// The sizes of the KV of one layer in a hand-off, K and V separately. `wire_bytes` counts payloads,
// without the headers of wire frames.
struct KvLayerParts {
  PartBytes k;
  PartBytes v;
  int32_t blocks = 0;      // number of blocks that were posted for sending
  int32_t raw_blocks = 0;  // number of blocks that were sent without a codec

  void Add(const ExtentParts& extent) {
    k.Add(extent.k);
    v.Add(extent.v);
    ++blocks;
    if (extent.raw) ++raw_blocks;
  }
  friend bool operator==(const KvLayerParts&, const KvLayerParts&) = default;
};

// The sizes of each layer in order, up to the last layer of which a block was posted. Blocks that
// were posted again after a lost stream count again.
using KvParts = std::vector<KvLayerParts>;

// The sizes of K and V in an extent of `layout` that is sent as it lies in the pool. Its first
// `tokens` tokens count as KV, and all of its bytes count on the wire.
ExtentParts PartsOfRawExtent(const KvLayout& layout, int32_t tokens);

// The most bytes that the codec tables for KV of this layout take.
int64_t MostTablesBytes(const KvLayout& layout);

}  // namespace tandem
