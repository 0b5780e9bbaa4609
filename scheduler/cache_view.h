#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"

namespace tandem {

// What is cached of a waiting sequence's known tokens.
struct CachedPrefix {
  int32_t device_tokens = 0;  // attached at no cost but their blocks; less than all known tokens
  int32_t host_tokens = 0;    // and behind these, on the host
  int32_t host_blocks = 0;    // to copy for host_tokens
  // What comes behind device_tokens is being computed by another sequence, or is being copied from
  // the host: to wait for it is cheaper than to compute it twice.
  bool pending = false;
};

// What a scheduler may know of the KV store while it plans: counts at one moment. The engine
// implements it over the store, tests over a model of one.
// Thread: engine.
class CacheView {
 public:
  virtual ~CacheView() = default;

  // Blocks that could be handed out now: free ones, and those that only the prefix cache holds.
  virtual int32_t AvailableBlocks() const = 0;

  // By how much AvailableBlocks falls when the sequence computes its known tokens up to `end`, in
  // each of its rows: new blocks, copies of shared ones, and for one that waits the blocks of its
  // cached prefix that nobody else holds.
  virtual int32_t BlocksToReach(SequenceId id, int32_t end) const = 0;

  // By how much AvailableBlocks rises when the sequence gives all of its blocks back.
  virtual int32_t BlocksGivenBack(SequenceId id) const = 0;

  // Blocks that a swap of the sequence would copy to the host; nothing when the host has no room.
  virtual std::optional<int32_t> BlocksToSwapOut(SequenceId id) const = 0;
  // Blocks that a swapped sequence needs to come back.
  virtual int32_t BlocksToSwapIn(SequenceId id) const = 0;

  virtual CachedPrefix Prefix(SequenceId id) const = 0;
};

}  // namespace tandem
