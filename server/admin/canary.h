#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/ids.h"
#include "router/attempt/route_proofs.h"
#include "router/cluster/cluster.h"
#include "router/event_loop.h"
#include "router/request/response_stream.h"
#include "server/admin/health.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Sends a request of two tokens over each route that no client's request has passed recently, so
// that a router knows whether requests still get through: a worker that is up and a link that is
// open may nevertheless compute and carry nothing. Such a canary request takes the path of a
// client's request, admission included; admission refuses it only when the router has other work,
// and such a refusal does not count against the route.
// Check and Report are thread-safe.
class Canary {
 public:
  // Has the signature and contract of Router::Submit.
  using Submit = std::function<absl::StatusOr<RequestId>(
      v1::GenerateRequest request, TimePoint deadline, ResponseStream& stream)>;
  // What a canary needs; everything must outlive it. Once it is destroyed the loop must run none of
  // its tasks, and its requests must have ended.
  struct Parts {
    Submit submit;
    EventLoop& loop;
    const Cluster& cluster;
    const RouteProofs& proofs;
    const Clock& clock;
    Duration interval;                             // a route without proof for so long is tried
    Duration patience = std::chrono::seconds(10);  // from sending a request to its deadline
  };
  explicit Canary(Parts parts);

  // Begins to send requests. Called once.
  void Start();

  // Holds when, on at least one route that the cluster can serve, the latest request that tried it
  // passed.
  HealthCheck Check() const;
  // Adds the proofs and the canary requests of each route that was ever tried.
  void Report(v1::GetStatusResponse& status) const;

 private:
  // The response stream of a canary request over `route`.
  class Stream final : public ResponseStream {
   public:
    Stream(Canary& owner, v1::Route route) : owner_(owner), route_(route) {}
    bool Send(const v1::GenerateResponse&, Pace) override { return true; }
    void End(const absl::Status& status) override { owner_.OnEnd(route_, status); }

   private:
    Canary& owner_;
    const v1::Route route_;
  };
  struct Trial {
    bool in_flight = false;
    TimePoint next{};      // the time before which no request is sent
    bool refused = false;  // whether admission refused the latest request
    absl::Status failure;  // status of the latest request that was admitted
    TimePoint failed_at{};
    uint64_t sent = 0;
    uint64_t failed = 0;
  };

  void Turn();
  void TryIfDue(v1::Route route, TimePoint now);
  Stream& StreamOf(v1::Route route) {
    return route == v1::ROUTE_UNIFIED ? unified_ : disaggregated_;
  }
  void OnEnd(v1::Route route, const absl::Status& status);
  // Says why the route is not known to work; empty where it works.
  std::string ProblemOf(v1::Route route) const;

  Trial& Of(v1::Route route) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return trials_[static_cast<size_t>(route)];
  }

  const Parts parts_;
  Stream unified_{*this, v1::ROUTE_UNIFIED};
  Stream disaggregated_{*this, v1::ROUTE_DISAGGREGATED};
  mutable absl::Mutex mutex_;
  std::array<Trial, v1::Route_ARRAYSIZE> trials_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
