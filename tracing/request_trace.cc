#include "tracing/request_trace.h"

#include <algorithm>
#include <utility>

namespace tandem {

TraceContext RequestTrace::ContextFor(SpanRef span) const {
  TraceContext context = context_;
  if (spans_.empty()) return context;
  // A span that was left out is represented by the one that stands for the whole request.
  const size_t index = span.index < spans_.size() ? span.index : 0;
  context.span_id = spans_[index].span.id;
  return context;
}

std::string RequestTrace::span_id() const {
  return spans_.empty() ? "" : ToHex(spans_.front().span.id);
}

RequestTrace::SpanRef RequestTrace::Add(std::string name, SpanKind kind, SpanId parent,
                                        TimePoint start) {
  if (!records()) return {};
  if (spans_.size() == kMaxSpans) {
    ++left_out_;
    return {};
  }
  spans_.push_back({.span = {.trace_id = context_.trace_id,
                             .id = NewSpanId(),
                             .parent = parent,
                             .tracestate = context_.tracestate,
                             .name = std::move(name),
                             .kind = kind,
                             .start = start,
                             .end = start}});
  return {spans_.size() - 1};
}

RequestTrace::SpanRef RequestTrace::BeginFirst(std::string name, SpanKind kind, TimePoint start) {
  return Add(std::move(name), kind, context_.span_id, start);
}

RequestTrace::SpanRef RequestTrace::Begin(std::string name, SpanKind kind, SpanRef parent,
                                          TimePoint start) {
  const Span* const above = Find(parent);
  if (above == nullptr) return {};
  return Add(std::move(name), kind, above->id, std::max(start, above->start));
}

Span* RequestTrace::Find(SpanRef span) {
  return span.index < spans_.size() ? &spans_[span.index].span : nullptr;
}

void RequestTrace::End(SpanRef span, TimePoint end, const absl::Status& status) {
  if (span.index >= spans_.size() || std::exchange(spans_[span.index].ended, true)) return;
  Span& ended = spans_[span.index].span;
  ended.end = std::max(end, ended.start);
  ended.status = status;
}

void RequestTrace::Finish(TimePoint end, const absl::Status& status) {
  if (spans_.empty() || !records()) return;
  End(first(), end, status);
  std::vector<Span> spans;
  for (size_t i = 0; i < spans_.size(); ++i) {
    End({i}, end);
    spans.push_back(std::move(spans_[i].span));
  }
  if (left_out_ > 0) spans.front().attributes.push_back({"tandem.spans_left_out", left_out_});
  spans_.clear();
  std::exchange(consumer_, nullptr)->Take(std::move(spans));
}

TracePoint TracePoint::Begin(std::string name, SpanKind kind, TimePoint start) const {
  if (!records()) return *this;
  return {trace, trace->Begin(std::move(name), kind, span, start)};
}

void TracePoint::End(TimePoint end, const absl::Status& status) const {
  if (trace != nullptr) trace->End(span, end, status);
}

void TracePoint::Set(std::string key, SpanAttribute::Value value) const {
  Span* const found = trace == nullptr ? nullptr : trace->Find(span);
  if (found != nullptr) found->attributes.push_back({std::move(key), std::move(value)});
}

std::optional<TraceContext> TracePoint::context() const {
  if (trace == nullptr) return std::nullopt;
  return trace->ContextFor(span);
}

}  // namespace tandem
