#include "tracing/otlp_json.h"

#include <cmath>
#include <utility>

#include "base/json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int kStatusError = 2;  // STATUS_CODE_ERROR; a span that did not fail has none

Json ValueJson(const std::string& text) { return {{"stringValue", text}}; }
Json ValueJson(int64_t number) { return {{"intValue", std::to_string(number)}}; }
Json ValueJson(bool yes) { return {{"boolValue", yes}}; }
Json ValueJson(double number) {
  if (std::isfinite(number)) return {{"doubleValue", number}};
  // As protobuf writes numbers that JSON does not have.
  return {{"doubleValue", std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity"}};
}
Json ValueJson(const std::vector<std::string>& texts) {
  Json values = Json::array();
  for (const std::string& text : texts) values.push_back(ValueJson(text));
  return {{"arrayValue", {{"values", std::move(values)}}}};
}

Json AttributesJson(const SpanAttributes& attributes) {
  Json all = Json::array();
  for (const SpanAttribute& attribute : attributes) {
    Json value = std::visit([](const auto& one) { return ValueJson(one); }, attribute.value);
    all.push_back({{"key", attribute.key}, {"value", std::move(value)}});
  }
  return all;
}

std::string UnixNanos(TimePoint at, Duration unix_offset) {
  return std::to_string((at.time_since_epoch() + unix_offset).count());
}

Json SpanJson(const Span& span, Duration unix_offset) {
  Json json = {{"traceId", ToHex(span.trace_id)},
               {"spanId", ToHex(span.id)},
               {"name", span.name},
               {"kind", static_cast<int>(span.kind)},
               {"startTimeUnixNano", UnixNanos(span.start, unix_offset)},
               {"endTimeUnixNano", UnixNanos(span.end, unix_offset)},
               {"attributes", AttributesJson(span.attributes)}};
  if (span.parent != 0) json["parentSpanId"] = ToHex(span.parent);
  if (!span.tracestate.empty()) json["traceState"] = span.tracestate;
  for (const SpanEvent& event : span.events) {
    json["events"].push_back(
        {{"name", event.name}, {"timeUnixNano", UnixNanos(event.at, unix_offset)}});
  }
  if (!span.status.ok()) {
    json["status"] = {{"code", kStatusError}, {"message", std::string(span.status.message())}};
  }
  return json;
}

}  // namespace

std::string ToOtlpJson(const TraceResource& resource, std::span<const EndedTrace> traces) {
  Json spans = Json::array();
  for (const EndedTrace& trace : traces) {
    for (const Span& span : trace.spans) spans.push_back(SpanJson(span, trace.unix_offset));
  }
  const Json scope = {{"name", "tandem"}, {"version", resource.version}};
  Json scope_spans = {{"scope", scope}, {"spans", std::move(spans)}};
  Json resource_spans = {{"resource", {{"attributes", AttributesJson(resource.attributes)}}},
                         {"scopeSpans", Json::array({std::move(scope_spans)})}};
  Json request = {{"resourceSpans", Json::array({std::move(resource_spans)})}};
  return JsonText(request);
}

}  // namespace tandem
