#include "router/client/traced_worker_client.h"

#include <utility>

namespace tandem {
namespace {

// Ends the span of a call that is dropped before it has ended, which cancels the work.
class TracedCall final : public WorkerCall {
 public:
  TracedCall(std::unique_ptr<WorkerCall> call, TracePoint span, const Clock& clock)
      : call_(std::move(call)), span_(std::move(span)), clock_(clock) {}
  ~TracedCall() override {
    call_.reset();
    if (!span_.is_open()) return;
    span_.Set("tandem.dropped", true);
    span_.End(clock_.Now());
  }

 private:
  std::unique_ptr<WorkerCall> call_;
  const TracePoint span_;
  const Clock& clock_;
};

}  // namespace

CallOptions TracedWorkerClient::Begin(const char* name, const WorkerEndpoint& worker,
                                      const CallOptions& options) const {
  CallOptions traced = options;
  traced.trace = options.trace.Begin(name, SpanKind::kClient, clock_.Now());
  traced.trace.Set("tandem.worker", worker.id.name);
  return traced;
}

StreamHandlers TracedWorkerClient::Traced(const TracePoint& span, StreamHandlers handlers) const {
  return {.on_event = std::move(handlers.on_event),
          .on_end = [this, span, on_end = std::move(handlers.on_end)](const CallEnd& end) {
            span.End(clock_.Now(), end.status);
            on_end(end);
          }};
}

std::unique_ptr<WorkerCall> TracedWorkerClient::Generate(const WorkerEndpoint& worker,
                                                         const v1::GenerateOnWorkerRequest& request,
                                                         const CallOptions& options,
                                                         StreamHandlers handlers) {
  if (!options.trace.records())
    return next_.Generate(worker, request, options, std::move(handlers));
  const CallOptions traced = Begin("generate", worker, options);
  return std::make_unique<TracedCall>(
      next_.Generate(worker, request, traced, Traced(traced.trace, std::move(handlers))),
      traced.trace, clock_);
}

std::unique_ptr<WorkerCall> TracedWorkerClient::Prefill(const WorkerEndpoint& worker,
                                                        const v1::PrefillRequest& request,
                                                        const CallOptions& options,
                                                        StreamHandlers handlers) {
  if (!options.trace.records()) return next_.Prefill(worker, request, options, std::move(handlers));
  const CallOptions traced = Begin("prefill", worker, options);
  return std::make_unique<TracedCall>(
      next_.Prefill(worker, request, traced, Traced(traced.trace, std::move(handlers))),
      traced.trace, clock_);
}

std::unique_ptr<WorkerCall> TracedWorkerClient::Decode(const WorkerEndpoint& worker,
                                                       const v1::DecodeRequest& request,
                                                       const CallOptions& options,
                                                       StreamHandlers handlers) {
  if (!options.trace.records()) return next_.Decode(worker, request, options, std::move(handlers));
  const CallOptions traced = Begin("decode", worker, options);
  return std::make_unique<TracedCall>(
      next_.Decode(worker, request, traced, Traced(traced.trace, std::move(handlers))),
      traced.trace, clock_);
}

std::unique_ptr<WorkerCall> TracedWorkerClient::Reserve(const WorkerEndpoint& worker,
                                                        const v1::ReserveRequest& request,
                                                        const CallOptions& options,
                                                        ReserveDone done) {
  if (!options.trace.records()) return next_.Reserve(worker, request, options, std::move(done));
  const CallOptions traced = Begin("reserve", worker, options);
  ReserveDone ended = [this, span = traced.trace, done = std::move(done)](
                          const CallEnd& end, const v1::ReserveResponse& response) {
    span.End(clock_.Now(), end.status);
    done(end, response);
  };
  return std::make_unique<TracedCall>(next_.Reserve(worker, request, traced, std::move(ended)),
                                      traced.trace, clock_);
}

}  // namespace tandem
