#pragma once

#include <memory>

#include "base/clock.h"
#include "engine/output_stream.h"
#include "grpcpp/server_context.h"
#include "tracing/request_trace.h"
#include "tracing/tracer.h"

namespace tandem {

// The calls of routers that a worker makes spans of.
enum class WorkerCallKind : uint8_t { kGenerate, kReserve, kPrefill, kDecode };

// The span of a router's call that has come; one without effect where the router does not record the
// request's trace or `tracer` is null.
TracePoint BeginWorkerCall(const Tracer* tracer, const grpc::ServerContextBase& context,
                           WorkerCallKind kind);
// The call has ended. Hands its spans over.
void EndWorkerCall(const TracePoint& call, const absl::Status& status);

// `next`, and when the request has ended the spans of its stages at this worker, as the engine measured
// them, below that of the call. Returns `next` alone for a call whose trace is not recorded.
std::unique_ptr<TokenSink> TraceStages(TracePoint call, WorkerCallKind kind,
                                       std::unique_ptr<TokenSink> next);

}  // namespace tandem
