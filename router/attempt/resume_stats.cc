#include "router/attempt/resume_stats.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace tandem {
namespace {

// The smallest of the durations that at least `share` of them do not exceed, in ms.
double Percentile(const std::vector<Duration>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return ToMilliseconds(sorted[std::max<size_t>(rank, 1) - 1]);
}

// Writes the percentiles of the pauses into `use`: a ResumeUse, ResumeCause or ResumeTimes.
template <typename Use>
void SetTimes(std::vector<Duration> pauses, Use& use) {
  std::sort(pauses.begin(), pauses.end());
  use.set_p50_ms(Percentile(pauses, 0.5));
  use.set_p99_ms(Percentile(pauses, 0.99));
  use.set_max_ms(Percentile(pauses, 1));
}

}  // namespace

std::string_view Name(ResumeCause cause) {
  switch (cause) {
    case ResumeCause::kConnection:
      return "connection";
    case ResumeCause::kLease:
      return "lease";
    case ResumeCause::kNoProgress:
      return "no_progress";
    case ResumeCause::kHandOff:
      return "hand_off";
    case ResumeCause::kLeaving:
      break;
  }
  return "leaving";
}

void ResumeStats::Count(ResumeCause cause) {
  absl::MutexLock lock(&mutex_);
  ++resumes_[static_cast<size_t>(cause)];
}

void ResumeStats::CountGaveUp() {
  absl::MutexLock lock(&mutex_);
  ++gave_up_;
}

void ResumeStats::AddPause(ResumeCause cause, Duration pause, Duration waited) {
  absl::MutexLock lock(&mutex_);
  if (pauses_.size() < kPauses) {
    pauses_.push_back({cause, pause, waited});
  } else {
    pauses_[num_pauses_ % kPauses] = {cause, pause, waited};
  }
  ++num_pauses_;
}

v1::ResumeUse ResumeStats::Use() const {
  v1::ResumeUse use;
  std::vector<Duration> all;
  std::vector<Duration> waited;
  std::array<std::vector<Duration>, kNumResumeCauses> by_cause;
  std::array<uint64_t, kNumResumeCauses> resumes;
  {
    absl::MutexLock lock(&mutex_);
    resumes = resumes_;
    use.set_gave_up(gave_up_);
    for (const Pause& pause : pauses_) {
      all.push_back(pause.length);
      waited.push_back(pause.waited);
      by_cause[static_cast<size_t>(pause.cause)].push_back(pause.length);
    }
  }
  SetTimes(std::move(all), use);
  SetTimes(std::move(waited), *use.mutable_waited());
  for (size_t i = 0; i < kNumResumeCauses; ++i) {
    if (resumes[i] == 0) continue;
    const auto cause = static_cast<ResumeCause>(i);
    if (cause == ResumeCause::kLeaving) {
      use.set_migrated(resumes[i]);
    } else {
      use.set_lost(use.lost() + resumes[i]);
    }
    v1::ResumeCause& entry = *use.add_causes();
    entry.set_cause(std::string(Name(cause)));
    entry.set_resumes(resumes[i]);
    SetTimes(std::move(by_cause[i]), entry);
  }
  return use;
}

}  // namespace tandem
