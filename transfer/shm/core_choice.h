#pragma once

#include <sched.h>

#include <chrono>

#include "base/clock.h"

namespace tandem {

// Keeps the loop's thread off the core of whoever it copies together with. The kernel may wake it
// on the core of the writer that woke it and leave it there, for as long as one of the two sleeps
// whenever the other runs: then they copy in turns, at half the rate.
// Thread: the loop's.
class CoreChoice {
 public:
  // The thread was woken because there is something to copy from a writer that runs on `core`. When
  // it is on that core once more within kSoon, and may run on others, it goes to another and stays
  // off for kAway. A lone burst is not worth that: the other core computes, maybe.
  void WokenBy(int core);

 private:
  static constexpr std::chrono::milliseconds kSoon{5};
  static constexpr std::chrono::milliseconds kAway{20};
  static constexpr std::chrono::milliseconds kAtMostEvery{1};

  void ComeBack();

  bool away_ = false;
  cpu_set_t allowed_{};  // while away_: before
  TimePoint woken_there_{};
  TimePoint back_at_{};
  TimePoint not_before_{};
};

}  // namespace tandem
