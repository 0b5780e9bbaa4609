#pragma once

#include <memory>

#include "base/clock.h"
#include "engine/output_stream.h"
#include "grpcpp/server_context.h"
#include "tracing/request_trace.h"
#include "tracing/tracer.h"

namespace tandem {

// The calls from routers for which a worker makes spans.
enum class WorkerCallKind : uint8_t { kGenerate, kReserve, kPrefill, kDecode };

// Begins the span of a router's call. Where the router does not record the request's trace, or
// `tracer` is null, the result has no effect.
TracePoint BeginWorkerCall(const Tracer* tracer, const grpc::ServerContextBase& context,
                           WorkerCallKind kind);
// Ends the span of a call and exports it.
void EndWorkerCall(const TracePoint& call, const absl::Status& status);

// Wraps `next` so that, when the request has ended, spans of its stages at this worker are added
// below that of the call, with the times that the engine measured. Returns `next` itself for a call
// whose trace is not recorded.
std::unique_ptr<TokenSink> TraceStages(TracePoint call, WorkerCallKind kind,
                                       std::unique_ptr<TokenSink> next);

}  // namespace tandem
