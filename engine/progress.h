#pragma once

#include <atomic>
#include <cstdint>

namespace tandem {

// Whether the engine thread moves, for whoever watches it while it may hang, in a step or at rest.
// Written by the engine thread, read by any: one number, which guards nothing.
class Progress {
 public:
  // One thing more is done: a message, a layer, a step, or a turn with nothing to do.
  void Count() { count_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> count_ = 0;
};

}  // namespace tandem
