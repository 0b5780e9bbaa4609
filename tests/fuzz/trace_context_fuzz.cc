// The headers of W3C Trace Context with foreign bytes: the first line is traceparent, the others
// are tracestate.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tracing/trace_context.h"
#include "tracing/tracestate.h"

// What is accepted is bounded, and is read again as it is written.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> lines;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    lines.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (lines.empty()) return 0;
  const std::string_view parents[] = {lines.front()};
  const std::vector<std::string_view> states(lines.begin() + 1, lines.end());
  const auto context = tandem::ParseTraceContext(parents, states);
  if (!context) return 0;
  TANDEM_CHECK(context->trace_id.valid() && context->span_id != 0, "a trace without ids");
  TANDEM_CHECK(context->tracestate.size() <= tandem::kMaxTracestateBytes, "a state without bound");
  const std::string written = tandem::ToTraceparent(*context);
  const std::string_view again[] = {written};
  const std::string_view state[] = {context->tracestate};
  const auto copy = tandem::ParseTraceContext(again, state);
  TANDEM_CHECK(copy && copy->trace_id == context->trace_id && copy->span_id == context->span_id &&
                   copy->sampled == context->sampled && copy->tracestate == context->tracestate,
               "a context that changes on its way");
  return 0;
}
