#pragma once

#include <atomic>
#include <cstdint>

namespace tandem {

// Whether the engine thread moves, for whoever watches it while it may hang in a step.
//   waits -> works   a message came and is still in the inbox, or a time that it waited for
//   works -> works   Count: one thing more is done (a message, a layer, a step)
//   works -> waits   all is done that could be
// Written by the engine thread, read by any: two numbers, none of which says more than itself. Who
// asks the inbox first and `works` second sees at least one of them while a message is not done.
class Progress {
 public:
  void Count() { count_.fetch_add(1, std::memory_order_relaxed); }
  void SetWorking() { works_.store(true, std::memory_order_release); }
  void SetWaiting() { works_.store(false, std::memory_order_release); }

  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  bool works() const { return works_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> count_ = 0;
  std::atomic<bool> works_ = true;
};

}  // namespace tandem
