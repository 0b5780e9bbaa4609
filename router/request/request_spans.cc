#include "router/request/request_spans.h"

#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

Duration FromMs(double ms) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

// Sets the request's usage in its span, by the names of OpenTelemetry's conventions for generative
// AI.
void DescribeUsage(const RequestSpec& spec, const TracedEnd& end) {
  const TracePoint& span = spec.trace;
  span.Set("gen_ai.request.max_tokens", int64_t{spec.sequence.max_tokens()});
  span.Set("gen_ai.response.id", spec.id);
  span.Set("gen_ai.response.model", spec.model);
  span.Set("gen_ai.usage.input_tokens", int64_t{spec.sequence.prompt_size()});
  span.Set("gen_ai.usage.output_tokens", int64_t{end.completion_tokens});
  std::vector<std::string> reasons;
  for (const v1::FinishReason reason : end.finish_reasons) {
    if (reason == v1::FINISH_REASON_STOP) reasons.emplace_back("stop");
    if (reason == v1::FINISH_REASON_LENGTH) reasons.emplace_back("length");
  }
  if (!reasons.empty()) span.Set("gen_ai.response.finish_reasons", std::move(reasons));
}

void DescribePlacement(const RequestSpec& spec, const TracedEnd& end) {
  const TracePoint& span = spec.trace;
  const RequestReport& report = end.report;
  span.Set("tandem.request_id", spec.id);
  span.Set("tandem.policy", std::string(end.policy));
  span.Set("tandem.cached_tokens", int64_t{report.last.cached_tokens});
  span.Set("tandem.resumes", int64_t{report.resumes});
  if (report.route == v1::ROUTE_AUTO) return;  // no worker was chosen
  const bool is_unified = report.route == v1::ROUTE_UNIFIED;
  span.Set("tandem.route", is_unified ? "unified" : "disaggregated");
  span.Set("tandem.worker.prefill", report.prefill.name);
  span.Set("tandem.worker.decode", report.decode.name);
}

void DescribeTimes(const RequestSpec& spec, const v1::ChoiceFinish& longest) {
  const TracePoint& span = spec.trace;
  span.Set("tandem.ttft_ms", longest.stages().ttft_ms());
  span.Set("tandem.tpot_ms", longest.tpot_ms());
  if (longest.has_predicted()) {
    span.Set("tandem.predicted.ttft_ms", longest.predicted().ttft_ms());
    span.Set("tandem.predicted.tpot_ms", longest.predicted().tpot_ms());
  }
  Span* const first = span.trace->Find(span.span);
  if (first == nullptr || longest.completion_tokens() == 0) return;
  first->events.push_back(
      {.name = "first_token", .at = spec.received + FromMs(longest.stages().ttft_ms())});
}

}  // namespace

TracePoint BeginRequestTrace(const Tracer* tracer, std::string_view model, const Clock& clock,
                             const std::optional<TraceContext>& caller) {
  if (tracer == nullptr) return {};
  TracePoint point{.trace = tracer->Begin(caller)};
  if (!point.records()) return point;
  point.span =
      point.trace->BeginFirst("generate " + std::string(model), SpanKind::kServer, clock.Now());
  point.Set("gen_ai.operation.name", "text_completion");
  point.Set("gen_ai.provider.name", "tandem");
  point.Set("gen_ai.request.model", std::string(model));
  return point;
}

void EndRequestTrace(const RequestSpec& spec, const TracedEnd& end, TimePoint now) {
  if (!spec.trace.records()) return;
  DescribeUsage(spec, end);
  DescribePlacement(spec, end);
  if (end.longest) DescribeTimes(spec, *end.longest);
  EndRequestTrace(spec.trace, end.status, now);
}

void EndRequestTrace(const TracePoint& trace, const absl::Status& status, TimePoint now) {
  if (!trace.records()) return;
  if (!status.ok()) trace.Set("error.type", absl::StatusCodeToString(status.code()));
  trace.trace->Finish(now, status);
}

}  // namespace tandem
