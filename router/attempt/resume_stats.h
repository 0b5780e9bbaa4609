#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Why a request had to continue elsewhere, as the router saw it (v1::ResumeCause explains the
// values).
enum class ResumeCause : uint8_t { kConnection, kLease, kNoProgress, kHandOff, kLeaving };
inline constexpr size_t kNumResumeCauses = 5;
std::string_view Name(ResumeCause cause);

// How often requests continued elsewhere, and how long their clients waited for that. Thread-safe.
class ResumeStats {
 public:
  void Count(ResumeCause cause);
  void CountGaveUp();
  // The client got its next token `pause` after the loss was noticed and `waited` after its
  // previous token, or after the request's arrival. `cause` is that of the first loss where there
  // were more.
  void AddPause(ResumeCause cause, Duration pause, Duration waited);

  v1::ResumeUse Use() const;

 private:
  static constexpr size_t kPauses = 1000;  // the latest pauses are kept, at most this many
  struct Pause {
    ResumeCause cause = ResumeCause::kConnection;
    Duration length{};
    Duration waited{};
  };

  mutable absl::Mutex mutex_;
  std::array<uint64_t, kNumResumeCauses> resumes_ ABSL_GUARDED_BY(mutex_) = {};
  uint64_t gave_up_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_pauses_ ABSL_GUARDED_BY(mutex_) = 0;  // since the start, kept or not
  std::vector<Pause> pauses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
