#pragma once

#include <atomic>
#include <cstdint>

namespace tandem {

// Shows other threads whether the engine thread makes progress, in a step or while it is idle.
// Written by the engine thread and read by any. Relaxed order is enough, because the number guards
// no other data.
class Progress {
 public:
  // A message, a layer, a step, or a wait without a message has ended.
  void Count() { count_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> count_ = 0;
};

}  // namespace tandem
