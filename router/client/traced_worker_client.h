#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "router/client/worker_client.h"

namespace tandem {

// Makes a span of each call of a request whose trace is recorded, below CallOptions::trace, and has
// the worker continue the trace from there. Calls of all other requests are only passed on.
class TracedWorkerClient final : public WorkerClient {
 public:
  // `next` and `clock` outlive this client and its calls.
  TracedWorkerClient(WorkerClient& next, const Clock& clock) : next_(next), clock_(clock) {}

  std::unique_ptr<WorkerCall> Generate(const WorkerEndpoint& worker,
                                       const v1::GenerateOnWorkerRequest& request,
                                       const CallOptions& options,
                                       StreamHandlers handlers) override;
  std::unique_ptr<WorkerCall> Prefill(const WorkerEndpoint& worker,
                                      const v1::PrefillRequest& request, const CallOptions& options,
                                      StreamHandlers handlers) override;
  std::unique_ptr<WorkerCall> Decode(const WorkerEndpoint& worker, const v1::DecodeRequest& request,
                                     const CallOptions& options, StreamHandlers handlers) override;
  std::unique_ptr<WorkerCall> Reserve(const WorkerEndpoint& worker,
                                      const v1::ReserveRequest& request, const CallOptions& options,
                                      ReserveDone done) override;
  void Release(const WorkerEndpoint& worker, const v1::ReleaseRequest& request) override {
    next_.Release(worker, request);
  }
  void EndChoice(const WorkerEndpoint& worker, const v1::EndChoiceRequest& request) override {
    next_.EndChoice(worker, request);
  }
  std::unique_ptr<WorkerCall> Ping(const WorkerEndpoint& worker,
                                   std::function<void(Health)> answered) override {
    return next_.Ping(worker, std::move(answered));
  }
  void Disconnect(const WorkerId& id) override { next_.Disconnect(id); }
  void KeepOnly(const ClusterView& view) override { next_.KeepOnly(view); }

 private:
  // Begins the span of a call to `worker`. Returns the options that have the worker continue the
  // trace from that span.
  CallOptions Begin(const char* name, const WorkerEndpoint& worker,
                    const CallOptions& options) const;
  StreamHandlers Traced(const TracePoint& span, StreamHandlers handlers) const;

  WorkerClient& next_;
  const Clock& clock_;
};

}  // namespace tandem
