#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/attempt/dispatch.h"
#include "router/request/request_spec.h"
#include "tracing/trace_context.h"
#include "tracing/tracer.h"

namespace tandem {

// How a request ended, for its span.
struct TracedEnd {
  const absl::Status& status;
  const RequestReport& report;
  const std::optional<v1::ChoiceFinish>& longest;  // the longest choice; nothing if none has ended
  std::vector<v1::FinishReason> finish_reasons;    // per choice; unspecified where it has not ended
  int32_t completion_tokens = 0;                   // of all choices
  std::string_view policy;
};

// Begins the trace of a request for `model` that comes now, with its first span. No trace where
// `tracer` is null.
TracePoint BeginRequestTrace(const Tracer* tracer, std::string_view model, const Clock& clock,
                             const std::optional<TraceContext>& caller);

// Says in the request's span how it ended, and hands all its spans over. Does nothing for a request
// whose trace is not recorded.
void EndRequestTrace(const RequestSpec& spec, const TracedEnd& end, TimePoint now);

// Ends the trace of a request that ended before it had workers.
void EndRequestTrace(const TracePoint& trace, const absl::Status& status, TimePoint now);

}  // namespace tandem
