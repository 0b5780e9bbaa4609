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

// Sends a request of two tokens over each route that no client's request has passed of late, so that a router
// knows whether requests still get through: a worker that is up and a link that is open may nevertheless
// compute and carry nothing. Each goes through all that a client's request goes through, also through
// admission; it is refused there only when the router has other work, which says nothing of the route.
// Check and Report are thread-safe.
class Canary {
 public:
  // Router::Submit.
  using Submit = std::function<absl::StatusOr<RequestId>(
      v1::GenerateRequest request, TimePoint deadline, ResponseStream& stream)>;
  // All outlive this. The loop runs none of its tasks after this was destroyed, and the requests have ended.
  struct Parts {
    Submit submit;
    EventLoop& loop;
    const Cluster& cluster;
    const RouteProofs& proofs;
    const Clock& clock;
    Duration interval;                             // without a proof, after which one is sent
    Duration patience = std::chrono::seconds(10);  // until its deadline
  };
  explicit Canary(Parts parts);

  // Begins to send. Call once.
  void Start();

  // Whether at least one route that the cluster can serve was passed by the latest request that tried.
  HealthCheck Check() const;
  // Adds an element for each route that was ever tried.
  void Report(v1::GetStatusResponse& status) const;

 private:
  // A request on its way over `route`.
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
    TimePoint next{};      // not before then
    bool refused = false;  // the latest, by admission
    absl::Status failure;  // of the latest that was admitted
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
  // Why the route is not known to work; empty where it is.
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
