#pragma once

#include <optional>

#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"
#include "tracing/trace_context.h"

namespace tandem {

// The trace context of a call, in the metadata "traceparent" and "tracestate" (W3C Trace Context).

void SendTraceContext(const TraceContext& trace, grpc::ClientContext& context);
// The trace that the caller named. Nothing where it sent none, or one that is malformed: the call
// belongs to no trace then.
std::optional<TraceContext> TraceContextOf(const grpc::ServerContextBase& context);

}  // namespace tandem
