#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/cluster/cluster_view.h"
#include "tandem/v1/kv_transfer.pb.h"
#include "tandem/v1/worker.pb.h"
#include "tracing/request_trace.h"

namespace tandem {

struct WorkerEndpoint {
  WorkerId id;
  std::string address;
};

inline WorkerEndpoint EndpointOf(const WorkerRef& worker) {
  return {worker.id, worker.info->address};
}

// How a call to a worker ended.
struct CallEnd {
  // kWorker: the worker itself answered. In the other cases it is lost. kNetwork: it could not be
  // reached, or the connection ended or became silent. kLease: its heartbeats stopped, or another
  // process took its name. kStuck: it makes no progress.
  enum class Source : uint8_t { kWorker, kNetwork, kLease, kStuck };
  absl::Status status;
  Source source = Source::kWorker;

  bool lost() const { return source != Source::kWorker; }
};

// A call in progress. Dropping it cancels the call; no handler is called afterwards.
// Thread: the router's loop.
class WorkerCall {
 public:
  virtual ~WorkerCall() = default;
};

// What a streaming call reports to. The handlers run on the router's loop, one at a time.
struct StreamHandlers {
  std::function<void(const v1::WorkerEvent&)> on_event;
  std::function<void(const CallEnd&)> on_end;  // exactly once, last, unless the call was dropped
};

// A worker's answer to a ping. The watchdog of a worker whose engine makes no progress keeps it
// from answering that it serves.
enum class Health : bool { kNotServing, kServing };

// What a call is made with besides its request.
struct CallOptions {
  TimePoint deadline = kNoDeadline;  // the worker gets it, too
  TracePoint trace = {};             // the request's span; the worker gets its context
};

using ReserveDone = std::function<void(const CallEnd&, const v1::ReserveResponse&)>;

// The calls that a router makes to workers. None of them blocks.
// Thread: the router's loop.
class WorkerClient {
 public:
  virtual ~WorkerClient() = default;
  virtual std::unique_ptr<WorkerCall> Generate(const WorkerEndpoint& worker,
                                               const v1::GenerateOnWorkerRequest& request,
                                               const CallOptions& options,
                                               StreamHandlers handlers) = 0;
  virtual std::unique_ptr<WorkerCall> Prefill(const WorkerEndpoint& worker,
                                              const v1::PrefillRequest& request,
                                              const CallOptions& options,
                                              StreamHandlers handlers) = 0;
  virtual std::unique_ptr<WorkerCall> Decode(const WorkerEndpoint& worker,
                                             const v1::DecodeRequest& request,
                                             const CallOptions& options,
                                             StreamHandlers handlers) = 0;
  virtual std::unique_ptr<WorkerCall> Reserve(const WorkerEndpoint& worker,
                                              const v1::ReserveRequest& request,
                                              const CallOptions& options, ReserveDone done) = 0;
  // Gives a reservation back. Does not wait for the answer: if the call does not arrive, the
  // reservation's lease lapses.
  virtual void Release(const WorkerEndpoint& worker, const v1::ReleaseRequest& request) = 0;
  // Tells the worker that a choice needs no more tokens. Does not wait for the answer: if the call
  // does not arrive, the choice runs to its own end and its tokens are dropped.
  virtual void EndChoice(const WorkerEndpoint& worker, const v1::EndChoiceRequest& request) = 0;
  // Asks the worker's health service, on the connection that all other calls to it take. `answered`
  // is called at most once, and never when no worker can be reached.
  virtual std::unique_ptr<WorkerCall> Ping(const WorkerEndpoint& worker,
                                           std::function<void(Health)> answered) = 0;
  // The next call to this worker opens a new connection. Calls in progress keep theirs.
  virtual void Disconnect(const WorkerId& id) = 0;
  // Closes the connections to workers that are not in `view`, once their calls have ended.
  virtual void KeepOnly(const ClusterView& view) = 0;
};

}  // namespace tandem
