#include "transfer/media/shm/core_choice.h"

namespace tandem {

void CoreChoice::WokenBy(int core) {
  const TimePoint now = std::chrono::steady_clock::now();
  if (away_ && now >= back_at_) ComeBack();
  if (core != sched_getcpu()) return;
  const bool again = now < woken_there_ + kSoon;
  woken_there_ = now;
  if (!again || now < not_before_) return;
  if (away_) ComeBack();
  if (sched_getaffinity(0, sizeof(allowed_), &allowed_) != 0 || CPU_COUNT(&allowed_) < 2) return;
  cpu_set_t others = allowed_;
  CPU_CLR(static_cast<size_t>(core), &others);
  away_ = sched_setaffinity(0, sizeof(others), &others) == 0;
  back_at_ = now + kAway;
  not_before_ = now + kAtMostEvery;
}

void CoreChoice::ComeBack() {
  sched_setaffinity(0, sizeof(allowed_), &allowed_);
  away_ = false;
}

}  // namespace tandem
