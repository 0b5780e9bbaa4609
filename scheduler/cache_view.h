#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"

namespace tandem {

// The part of a waiting sequence's known tokens that is cached.
struct CachedPrefix {
  int32_t device_tokens = 0;  // attaching them costs only their blocks; less than all known tokens
  int32_t host_tokens = 0;    // cached tokens behind device_tokens, in host memory
  int32_t host_blocks = 0;    // the blocks that must be copied from the host for host_tokens
  // Whether the tokens behind device_tokens are being computed for another sequence, or are being
  // copied from the host. Waiting for them is cheaper than computing them twice.
  bool pending = false;
};

// The KV store as the scheduler sees it while it plans: counts at one moment. The engine implements
// it over the store, tests implement it over a model of a store.
// Thread: engine.
class CacheView {
 public:
  virtual ~CacheView() = default;

  // The number of blocks that can be allocated now: free ones, and those that only the prefix cache
  // holds.
  virtual int32_t AvailableBlocks() const = 0;

  // By how much AvailableBlocks falls when the sequence computes its known tokens up to `end` in
  // each of its rows: new blocks, copies of shared ones, and for a waiting sequence also the blocks
  // of its cached prefix that no other sequence holds.
  virtual int32_t BlocksToReach(SequenceId id, int32_t end) const = 0;

  // By how much AvailableBlocks rises when the sequence frees all of its blocks.
  virtual int32_t BlocksFreedBy(SequenceId id) const = 0;

  // The number of blocks that swapping out the sequence would copy to the host; nothing when the
  // host has no room.
  virtual std::optional<int32_t> BlocksToSwapOut(SequenceId id) const = 0;
  // The number of blocks that a swapped sequence needs when its KV is copied back to the device.
  virtual int32_t BlocksToSwapIn(SequenceId id) const = 0;

  virtual CachedPrefix Prefix(SequenceId id) const = 0;
};

}  // namespace tandem
