#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "router/admission/shedding.h"
#include "router/admission/tenant_counts.h"
#include "router/admission/tenant_policy.h"
#include "router/admission/token_bucket.h"
#include "router/policy/slo.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

struct AdmissionOptions {
  int32_t max_in_flight = 1024;  // rows of all requests: choices or beams
  Shedding shedding = Shedding::kOff;
  // From this share of max_in_flight on, a tenant that competes with others is held to its own
  // share.
  double crowded = 0.8;
};

// What decides whether a request that was given a placement is refused because it would start too
// late.
struct PredictedStart {
  std::string tenant;
  int32_t priority = 0;
  ModelTime ttft{};  // from now on, as predicted
  ModelTime wait{};  // the part of `ttft` that is a wait for other requests
  // Half the width of the interval around the predicted TTFT in which the actual one is expected,
  // as a share of the prediction; nothing before enough requests were compared.
  std::optional<double> interval;
  Duration elapsed{};  // since the request came
  Duration left{};     // until the deadline of the request
  std::optional<ModelTime> ttft_slo;
};

// Decides which requests a router takes: the rows in flight are bounded, tenants have limits of their
// own, and where tenants compete for the last room, each is held to its share. Once a request has a
// placement whose time was predicted, it is refused when it would start too late: its work would take
// time from requests that can still be served well.
//
// Every refusal is RESOURCE_EXHAUSTED with a RetryAfter, names the limit, and is counted by its reason.
// Thread-safe.
class AdmissionControl {
 public:
  explicit AdmissionControl(AdmissionOptions options) : options_(options) {}

  // Replaces the limits of all tenants, also of those that have requests in flight.
  void SetTenants(std::shared_ptr<const TenantPolicy> tenants, TimePoint now);

  // Takes a request of `rows` rows in; each OK is followed by one Release.
  absl::Status Admit(const std::string& tenant, int32_t rows, TimePoint now);
  void Release(const std::string& tenant, int32_t rows, TimePoint now);
  // Takes tokens that the tenant has used from its rate. What exceeds the rate is owed, and delays
  // the tenant's next requests.
  void ChargeTokens(const std::string& tenant, int64_t tokens, TimePoint now);

  // Whether an admitted request may go to the placement that was chosen for it, by its predicted
  // start. It is late for its SLO if it would miss it with a wait that is longer by as much as the
  // prediction may be wrong: a shorter queue keeps the workers as busy. Not refused for its SLO is
  // a request that would miss it without any wait, and one whose tenant has less than its share in
  // flight, because the workers prefer it to those of other tenants. A request with a priority
  // above 0 overtakes what it is predicted to wait for, and is not refused at all.
  absl::Status CheckStart(const PredictedStart& start);

  int32_t in_flight() const;
  v1::AdmissionUse Use() const;

 private:
  enum class Reason : uint8_t {
    kInFlight,
    kTenantShare,
    kTenantInFlight,
    kTenantRequests,
    kTenantTokens,
    kDeadline,
    kSlo,
  };
  static constexpr size_t kReasons = 7;

  struct Tenant {
    int32_t rows = 0;
    std::optional<TokenBucket> requests;
    std::optional<TokenBucket> tokens;
  };

  Tenant& Find(const std::string& tenant, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyLimits(const TenantLimits& limits, Tenant& tenant, TimePoint now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckTenant(const std::string& name, const Tenant& tenant, int32_t rows,
                           TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRoom(const std::string& name, const Tenant& tenant, int32_t rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The part of `whole` that belongs to the tenant among those that have requests in flight, itself
  // included.
  double ShareOf(const std::string& name, double whole) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int32_t RowsOf(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle(const Tenant& tenant, TimePoint now) const;
  void ForgetIdle(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Refuse(Reason reason, const std::string& tenant, absl::Status status,
                      Duration retry_after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const TenantLimits& LimitsOf(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AdmissionOptions options_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const TenantPolicy> policy_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const TenantPolicy>();
  absl::flat_hash_map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
  int32_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  // The number of tenants that have rows in flight.
  int32_t active_ ABSL_GUARDED_BY(mutex_) = 0;
  double active_weight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<uint64_t, kReasons> refused_ ABSL_GUARDED_BY(mutex_) = {};
  TenantCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
