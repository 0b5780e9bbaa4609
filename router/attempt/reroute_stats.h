#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/attempt/attempt_workers.h"
#include "router/policy/placement.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Where a request went that a worker had no room for (v1::RerouteUse explains the values).
enum class Reroute : uint8_t { kOtherWorker, kUnified, kDisaggregated, kAskedAgain };
inline constexpr size_t kNumReroutes = 4;

// How the route that is taken now differs from the workers that had no room.
Reroute KindOf(const AttemptWorkers& refused, const RouteDecision& taken);

// How often requests went elsewhere because a worker refused them. Thread-safe.
class RerouteStats {
 public:
  // Counts a request that a worker refused. `why`: the message of the refusal.
  void Count(Reroute kind, std::string why);

  // A request was taken out of a worker's queue because other workers had become free.
  void CountMoved();

  v1::RerouteUse Use() const;

 private:
  mutable absl::Mutex mutex_;
  std::array<uint64_t, kNumReroutes> counts_ ABSL_GUARDED_BY(mutex_) = {};
  uint64_t moved_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string latest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
