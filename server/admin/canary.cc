#include "server/admin/canary.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr Duration kTurn = std::chrono::seconds(1);
constexpr Duration kFirstTurns = std::chrono::milliseconds(100);  // until all routes work
constexpr Duration kRetry = std::chrono::seconds(1);              // after a failed request

const char* NameOf(v1::Route route) {
  return route == v1::ROUTE_UNIFIED ? "unified" : "disaggregated";
}

// A request of two tokens, so that on a disaggregated route the second one comes from the decode
// worker.
v1::GenerateRequest RequestOver(v1::Route route) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(0);
  request.set_request_id("canary");
  request.set_route(route);
  request.set_max_tokens(2);
  request.set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0);
  return request;
}

}  // namespace

Canary::Canary(Parts parts) : parts_(std::move(parts)) {}

void Canary::Start() {
  parts_.loop.Post([this] { Turn(); });
}

void Canary::Turn() {
  const TimePoint now = parts_.clock.Now();
  const std::vector<v1::Route> routes = parts_.cluster.View()->Routes();
  for (const v1::Route route : routes) TryIfDue(route, now);
  const bool all_passed = !routes.empty() && std::ranges::all_of(routes, [this](v1::Route route) {
    return parts_.proofs.latest(route).has_value();
  });
  parts_.loop.PostAt(now + (all_passed ? kTurn : kFirstTurns), [this] { Turn(); });
}

void Canary::TryIfDue(v1::Route route, TimePoint now) {
  const std::optional<TimePoint> proven = parts_.proofs.latest(route);
  {
    absl::MutexLock lock(&mutex_);
    Trial& trial = Of(route);
    if (trial.in_flight || now < trial.next) return;
    if (proven && now - *proven < parts_.interval) return;
    trial.in_flight = true;
    ++trial.sent;
  }
  const auto id = parts_.submit(RequestOver(route), now + parts_.patience, StreamOf(route));
  if (!id.ok()) OnEnd(route, id.status());
}

void Canary::OnEnd(v1::Route route, const absl::Status& status) {
  const TimePoint now = parts_.clock.Now();
  const bool refused = absl::IsResourceExhausted(status);
  bool is_news = false;
  {
    absl::MutexLock lock(&mutex_);
    Trial& trial = Of(route);
    trial.in_flight = false;
    trial.refused = refused;
    trial.next = now + (status.ok() ? parts_.interval : std::min(kRetry, parts_.interval));
    if (!refused) {
      is_news = status.ok() != trial.failure.ok();
      trial.failure = status;
      if (!status.ok()) {
        trial.failed_at = now;
        ++trial.failed;
      }
    }
  }
  if (!is_news) return;
  if (status.ok()) {
    LogInfo("requests pass again route={}", NameOf(route));
  } else {
    LogWarn("a canary request did not pass route={} why=\"{}\"", NameOf(route), status.ToString());
  }
}

std::string Canary::ProblemOf(v1::Route route) const {
  const std::optional<TimePoint> proven = parts_.proofs.latest(route);
  absl::MutexLock lock(&mutex_);
  const Trial& trial = trials_[static_cast<size_t>(route)];
  if (!trial.failure.ok() && (!proven || *proven < trial.failed_at)) {
    return fmt::format("{}: {}", NameOf(route), trial.failure.ToString());
  }
  if (!proven && !trial.refused) {
    return fmt::format("{}: no request has passed yet", NameOf(route));
  }
  return "";
}

HealthCheck Canary::Check() const {
  HealthCheck check{.name = "canary"};
  const std::vector<v1::Route> routes = parts_.cluster.View()->Routes();
  for (const v1::Route route : routes) {
    const std::string problem = ProblemOf(route);
    if (problem.empty()) {
      check.problem.clear();
      if (const auto proven = parts_.proofs.latest(route)) {
        check.age = parts_.clock.Now() - *proven;
      }
      break;
    }
    check.problem += (check.problem.empty() ? "" : "; ") + problem;
  }
  if (routes.empty()) check.problem = "there is no route to try";
  return check;
}

void Canary::Report(v1::GetStatusResponse& status) const {
  const TimePoint now = parts_.clock.Now();
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
    const std::optional<TimePoint> proven = parts_.proofs.latest(route);
    absl::MutexLock lock(&mutex_);
    const Trial& trial = trials_[static_cast<size_t>(route)];
    if (trial.sent == 0 && !proven) continue;
    v1::RouteProof& proof = *status.add_route_proofs();
    proof.set_route(NameOf(route));
    proof.set_canaries(trial.sent);
    proof.set_failed_canaries(trial.failed);
    if (proven) proof.set_age_ms(ToMilliseconds(now - *proven));
  }
}

}  // namespace tandem
