#pragma once

#include <optional>

#include "server/http/http_message.h"
#include "tracing/trace_context.h"

namespace tandem::openai {

// The trace that an HTTP request belongs to, by its headers traceparent and tracestate. Nothing
// where its client sent none, or one that is malformed.
std::optional<TraceContext> TraceContextOf(const HttpRequest& request);

}  // namespace tandem::openai
