#pragma once

#include <cstdint>
#include <vector>

#include "kvstore/codec/extent_parts.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// What the KV of one layer took in a hand-off, K and V apart. `wire_bytes` are payloads, without the
// headers of wire frames.
struct KvLayerParts {
  PartBytes k;
  PartBytes v;
  int32_t blocks = 0;      // that were posted
  int32_t raw_blocks = 0;  // of these, those that were sent without a codec

  void Add(const ExtentParts& extent) {
    k.Add(extent.k);
    v.Add(extent.v);
    ++blocks;
    if (extent.raw) ++raw_blocks;
  }
  friend bool operator==(const KvLayerParts&, const KvLayerParts&) = default;
};

// One element for each layer in order; those behind the last one that was posted are missing. What was posted
// again after a lost stream counts again.
using KvParts = std::vector<KvLayerParts>;

// The parts of an extent of `layout` that is sent as it lies in the pool. Its first `tokens` tokens are
// KV, and what else it has counts on the wire alone.
ExtentParts PartsOfRawExtent(const KvLayout& layout, int32_t tokens);

}  // namespace tandem
