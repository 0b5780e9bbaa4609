#pragma once

#include <sched.h>

#include <chrono>

#include "base/clock.h"

namespace tandem {

// Keeps the loop's thread off the core of the peer that it copies together with. The kernel may wake
// the thread on the core of the writer that woke it, and leave it there as long as one of the two
// sleeps whenever the other runs. They would then copy in turns, at half the rate.
// Thread: the loop's.
class CoreChoice {
 public:
  // To be called when the thread was woken to copy from a writer that runs on `core`. When that
  // happens on the thread's own core twice within kSoon, the thread moves to another core that it
  // may use and stays away for kAway. A single burst does not move it, because the other core may
  // be computing.
  void WokenBy(int core);

 private:
  static constexpr std::chrono::milliseconds kSoon{5};
  static constexpr std::chrono::milliseconds kAway{20};
  static constexpr std::chrono::milliseconds kAtMostEvery{1};

  void ComeBack();

  bool away_ = false;
  cpu_set_t allowed_{};  // while away_: the cores allowed before
  TimePoint woken_there_{};
  TimePoint back_at_{};
  TimePoint not_before_{};
};

}  // namespace tandem
