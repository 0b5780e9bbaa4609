#include "router/resume_stats.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// The smallest that at least this share of all do not exceed.
double Percentile(const std::vector<Duration>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return ToMilliseconds(sorted[std::max<size_t>(rank, 1) - 1]);
}

}  // namespace

void ResumeStats::CountLost() {
  absl::MutexLock lock(&mutex_);
  ++lost_;
}

void ResumeStats::CountMigrated() {
  absl::MutexLock lock(&mutex_);
  ++migrated_;
}

void ResumeStats::CountGaveUp() {
  absl::MutexLock lock(&mutex_);
  ++gave_up_;
}

void ResumeStats::AddPause(Duration pause) {
  absl::MutexLock lock(&mutex_);
  if (pauses_.size() < kPauses) {
    pauses_.push_back(pause);
  } else {
    pauses_[num_pauses_ % kPauses] = pause;
  }
  ++num_pauses_;
}

v1::ResumeUse ResumeStats::Use() const {
  v1::ResumeUse use;
  std::vector<Duration> sorted;
  {
    absl::MutexLock lock(&mutex_);
    use.set_lost(lost_);
    use.set_migrated(migrated_);
    use.set_gave_up(gave_up_);
    sorted = pauses_;
  }
  std::sort(sorted.begin(), sorted.end());
  use.set_p50_ms(Percentile(sorted, 0.5));
  use.set_p99_ms(Percentile(sorted, 0.99));
  use.set_max_ms(Percentile(sorted, 1));
  return use;
}

}  // namespace tandem
