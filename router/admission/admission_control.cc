#include "router/admission/admission_control.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/retry_after.h"
#include "base/status.h"

namespace tandem {
namespace {

// The retry-after of refusals for want of room: when the next request ends is not known, so the
// client is asked to retry soon.
constexpr Duration kSoon = std::chrono::milliseconds(500);
constexpr Duration kLeastRetryAfter = std::chrono::milliseconds(50);
constexpr Duration kMostShedRetryAfter = std::chrono::seconds(30);
// The relative error that a predicted wait is taken to have while none is known, and at least.
constexpr double kUnknownInterval = 0.5;
constexpr double kLeastInterval = 0.1;
// The most tenants that are remembered. Idle ones are kept only while what they used counts against
// their rates: names that clients make up must not fill the memory.
constexpr size_t kMostTenants = 1 << 14;
// The tokens that a tenant's bucket must hold before the tenant may send another request, whose
// length is not known yet.
constexpr double kLeastTokens = 1;

std::string NameOf(const std::string& tenant) {
  return tenant.empty() ? "requests without a tenant" : fmt::format("tenant {}", tenant);
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

Duration ToDuration(ModelTime time) { return std::chrono::duration_cast<Duration>(time); }

void SetBucket(const std::optional<double>& per_minute, std::optional<TokenBucket>& bucket,
               TimePoint now) {
  if (!per_minute) {
    bucket.reset();
  } else if (bucket) {
    bucket->SetRate(*per_minute, now);
  } else {
    bucket.emplace(*per_minute, now);
  }
}

}  // namespace

const TenantLimits& AdmissionControl::LimitsOf(const std::string& name) const {
  return policy_->Of(name);
}

void AdmissionControl::SetTenants(std::shared_ptr<const TenantPolicy> tenants, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  policy_ = std::move(tenants);
  counts_.SetNamed(policy_->named);
  active_weight_ = 0;
  for (auto& [name, tenant] : tenants_) {
    ApplyLimits(LimitsOf(name), tenant, now);
    if (tenant.rows > 0) active_weight_ += LimitsOf(name).weight;
  }
}

void AdmissionControl::ApplyLimits(const TenantLimits& limits, Tenant& tenant,
                                   TimePoint now) const {
  SetBucket(limits.requests_per_minute, tenant.requests, now);
  SetBucket(limits.tokens_per_minute, tenant.tokens, now);
}

AdmissionControl::Tenant& AdmissionControl::Find(const std::string& tenant, TimePoint now) {
  const auto [at, is_new] = tenants_.try_emplace(tenant);
  if (is_new) ApplyLimits(LimitsOf(tenant), at->second, now);
  return at->second;
}

absl::Status AdmissionControl::Admit(const std::string& tenant, int32_t rows, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  if (tenants_.size() >= kMostTenants) ForgetIdle(now);
  Tenant& of = Find(tenant, now);
  absl::Status status = CheckTenant(tenant, of, rows, now);
  if (status.ok()) status = CheckRoom(tenant, of, rows);
  if (!status.ok()) {
    if (IsIdle(of, now)) tenants_.erase(tenant);
    return status;
  }
  if (of.requests) of.requests->Take(1, now);
  if (of.rows == 0) {
    ++active_;
    active_weight_ += LimitsOf(tenant).weight;
  }
  of.rows += rows;
  rows_ += rows;
  counts_.Admitted(tenant);
  return absl::OkStatus();
}

absl::Status AdmissionControl::CheckTenant(const std::string& name, const Tenant& tenant,
                                           int32_t rows, TimePoint now) {
  const TenantLimits& limits = LimitsOf(name);
  if (tenant.requests && tenant.requests->Level(now) < 1) {
    return Refuse(Reason::kTenantRequests, name,
                  ResourceExhausted("{} may send {:g} requests per minute: retry later",
                                    NameOf(name), *limits.requests_per_minute),
                  tenant.requests->UntilLevel(1, now));
  }
  if (tenant.tokens && tenant.tokens->Level(now) < kLeastTokens) {
    return Refuse(Reason::kTenantTokens, name,
                  ResourceExhausted("{} may use {:g} tokens per minute: retry later", NameOf(name),
                                    *limits.tokens_per_minute),
                  tenant.tokens->UntilLevel(kLeastTokens, now));
  }
  if (limits.max_in_flight && tenant.rows + rows > *limits.max_in_flight) {
    return Refuse(
        Reason::kTenantInFlight, name,
        ResourceExhausted("{} more choices of {} would exceed the {} that it may have in flight: "
                          "retry later",
                          rows, NameOf(name), *limits.max_in_flight),
        kSoon);
  }
  return absl::OkStatus();
}

absl::Status AdmissionControl::CheckRoom(const std::string& name, const Tenant& tenant,
                                         int32_t rows) {
  if (rows_ + rows > options_.max_in_flight) {
    return Refuse(
        Reason::kInFlight, name,
        ResourceExhausted("{} more choices would exceed the {} that may be in flight: retry later",
                          rows, options_.max_in_flight),
        kSoon);
  }
  if (rows_ + rows <= options_.crowded * options_.max_in_flight) return absl::OkStatus();
  const bool alone = active_ == (tenant.rows > 0 ? 1 : 0);
  const double share = ShareOf(name, options_.max_in_flight);
  if (alone || tenant.rows + rows <= share) return absl::OkStatus();
  return Refuse(Reason::kTenantShare, name,
                ResourceExhausted("the router is nearly full, and {} more choices of {} would "
                                  "exceed its share of {:.0f}: retry later",
                                  rows, NameOf(name), share),
                kSoon);
}

double AdmissionControl::ShareOf(const std::string& name, double whole) const {
  const double weight = LimitsOf(name).weight;
  return whole * weight / (active_weight_ + (RowsOf(name) > 0 ? 0 : weight));
}

int32_t AdmissionControl::RowsOf(const std::string& name) const {
  const auto found = tenants_.find(name);
  return found == tenants_.end() ? 0 : found->second.rows;
}

void AdmissionControl::Release(const std::string& tenant, int32_t rows, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return;
  Tenant& of = found->second;
  of.rows -= rows;
  rows_ -= rows;
  if (of.rows > 0) return;
  --active_;
  active_weight_ = active_ == 0 ? 0 : active_weight_ - LimitsOf(tenant).weight;
  if (IsIdle(of, now)) tenants_.erase(found);
}

void AdmissionControl::ChargeTokens(const std::string& tenant, int64_t tokens, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  counts_.Used(tenant, tokens);
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end() || !found->second.tokens) return;
  found->second.tokens->Take(static_cast<double>(tokens), now);
}

bool AdmissionControl::IsIdle(const Tenant& tenant, TimePoint now) const {
  const auto is_full = [now](const std::optional<TokenBucket>& bucket) {
    return !bucket || bucket->IsFull(now);
  };
  return tenant.rows == 0 && is_full(tenant.requests) && is_full(tenant.tokens);
}

// Forgets idle tenants whose use no longer counts against their rates. If too many are left, those
// whose use still counts are forgotten as well.
void AdmissionControl::ForgetIdle(TimePoint now) {
  absl::erase_if(tenants_, [this, now](const auto& one) { return IsIdle(one.second, now); });
  if (tenants_.size() < kMostTenants) return;
  absl::erase_if(tenants_, [](const auto& one) { return one.second.rows == 0; });
}

absl::Status AdmissionControl::CheckStart(const PredictedStart& start) {
  if (options_.shedding == Shedding::kOff || start.priority > 0) return absl::OkStatus();
  const Duration wait = ToDuration(start.ttft);
  absl::MutexLock lock(&mutex_);
  if (wait > start.left) {
    return Refuse(Reason::kDeadline, start.tenant,
                  ResourceExhausted("its first token is expected in {:.1f} s, after its deadline "
                                    "in {:.1f} s: retry later",
                                    Seconds(wait), Seconds(start.left)),
                  std::min(wait - start.left, kMostShedRetryAfter));
  }
  if (options_.shedding != Shedding::kSlo || !start.ttft_slo) return absl::OkStatus();
  // Without any wait the request would miss its SLO as well: no later try would change that.
  if (start.ttft - start.wait > *start.ttft_slo) return absl::OkStatus();
  const double interval = std::max(start.interval.value_or(kUnknownInterval), kLeastInterval);
  const Duration uncertain = ToDuration(start.wait * interval);
  const Duration late = start.elapsed + wait + uncertain - ToDuration(*start.ttft_slo);
  if (late <= Duration::zero() || RowsOf(start.tenant) < ShareOf(start.tenant, rows_)) {
    return absl::OkStatus();
  }
  return Refuse(
      Reason::kSlo, start.tenant,
      ResourceExhausted("its first token is expected {:.2f} s after it came, give or take "
                        "{:.2f} s, and its TTFT SLO is {:.2f} s: retry later",
                        Seconds(start.elapsed + wait), Seconds(uncertain),
                        start.ttft_slo->count() / 1e3),
      std::min(late, kMostShedRetryAfter));
}

absl::Status AdmissionControl::Refuse(Reason reason, const std::string& tenant, absl::Status status,
                                      Duration retry_after) {
  ++refused_[static_cast<size_t>(reason)];
  counts_.Refused(tenant);
  SetRetryAfter(status, std::chrono::ceil<std::chrono::milliseconds>(
                            std::max(retry_after, kLeastRetryAfter)));
  return status;
}

int32_t AdmissionControl::in_flight() const {
  absl::MutexLock lock(&mutex_);
  return rows_;
}

v1::AdmissionUse AdmissionControl::Use() const {
  absl::MutexLock lock(&mutex_);
  const auto refused = [this](Reason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return refused_[static_cast<size_t>(reason)];
  };
  v1::AdmissionUse use;
  use.set_active_tenants(active_);
  use.set_refused_in_flight(refused(Reason::kInFlight));
  use.set_refused_tenant_share(refused(Reason::kTenantShare));
  use.set_refused_tenant_in_flight(refused(Reason::kTenantInFlight));
  use.set_refused_tenant_requests(refused(Reason::kTenantRequests));
  use.set_refused_tenant_tokens(refused(Reason::kTenantTokens));
  use.set_shed_deadline(refused(Reason::kDeadline));
  use.set_shed_slo(refused(Reason::kSlo));
  const auto rows = [this](const std::string& name)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return RowsOf(name); };
  counts_.Report(rows, rows_, use);
  return use;
}

}  // namespace tandem
