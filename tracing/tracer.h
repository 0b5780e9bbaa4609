#pragma once

#include <memory>
#include <optional>

#include "tracing/request_trace.h"
#include "tracing/span.h"
#include "tracing/trace_context.h"

namespace tandem {

// Decides of which requests spans are made. Thread-safe.
class Tracer {
 public:
  // `ratio`, 0 to 1: the share of the requests without a caller's trace that become one. `consumer`
  // outlives this; null where no spans are made, so that contexts are only passed on.
  Tracer(double ratio, SpanConsumer* consumer) : ratio_(ratio), consumer_(consumer) {}

  // Whether spans are made of any request.
  bool makes_spans() const { return consumer_ != nullptr; }
  // The trace of a request that has come. The caller's flag decides where there is a caller's
  // context, else the ratio. Null where the request belongs to no trace, which costs nothing.
  std::shared_ptr<RequestTrace> Begin(const std::optional<TraceContext>& caller) const;

 private:
  const double ratio_;
  SpanConsumer* const consumer_;
};

}  // namespace tandem
