#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/policy/placement.h"
#include "router/policy/slo.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// Where requests were sent and why (v1::RoutingUse explains the values). When a policy that
// predicts costs begins or ceases to choose without predictions, that is logged. Thread-safe.
class RoutingStats {
 public:
  // `policy`: the name of the routing policy. `slo`: the default for requests that bring none.
  RoutingStats(std::string policy, const Slo& slo) : policy_(std::move(policy)), slo_(slo) {}

  void Count(const RouteDecision& taken);
  v1::RoutingUse Use() const;
  const std::string& policy() const { return policy_; }

 private:
  static constexpr size_t kNumBases = 3;

  const std::string policy_;
  const Slo slo_;
  mutable absl::Mutex mutex_;
  uint64_t unified_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<uint64_t, kNumBases> bases_ ABSL_GUARDED_BY(mutex_) = {};  // by RouteDecision::Basis
  std::string missing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
