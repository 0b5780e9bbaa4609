#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "tracing/span.h"
#include "tracing/trace_context.h"

namespace tandem {

// The trace of one request in one process: the context that its calls carry, and the spans that are
// made of it here. Where the trace is not sampled, or nothing takes spans, it only holds the
// context of the caller, and all calls that make spans do nothing. One thread at a time.
class RequestTrace {
 public:
  // More spans of one request are left out; the first one says how many.
  static constexpr size_t kMaxSpans = 64;

  // Names a span of this trace; the default names none, and everything that is done with it has no
  // effect.
  struct SpanRef {
    static constexpr size_t kNone = static_cast<size_t>(-1);
    size_t index = kNone;
  };

  // `context` is that of the caller, or of a trace that begins here. `consumer` outlives this; null
  // when no spans are to be made.
  RequestTrace(TraceContext context, SpanConsumer* consumer)
      : context_(std::move(context)), consumer_(consumer) {}

  // Whether spans are made of the request.
  bool records() const { return consumer_ != nullptr; }
  // As logs show it.
  std::string trace_id() const { return ToHex(context_.trace_id); }
  // What a call has to carry whose span is `span`; the caller's context where no span is made.
  TraceContext ContextFor(SpanRef span) const;
  // The id of the first span, which stands for the whole request here; empty where none is made.
  std::string span_id() const;

  // The first span continues the caller's, others are children of `parent` and begin with it at the
  // earliest: what a worker reports of its times must not pull them apart.
  SpanRef BeginFirst(std::string name, SpanKind kind, TimePoint start);
  SpanRef Begin(std::string name, SpanKind kind, SpanRef parent, TimePoint start);
  // To add to a span that was begun; null for none.
  Span* Find(SpanRef span);
  // Once per span: a later end of a span that has ended changes nothing.
  void End(SpanRef span, TimePoint end, const absl::Status& status = absl::OkStatus());

  SpanRef first() const { return spans_.empty() ? SpanRef{} : SpanRef{0}; }
  bool IsOpen(SpanRef span) const {
    return span.index < spans_.size() && !spans_[span.index].ended;
  }
  // Ends what has not ended, the first span with `status`, and hands the spans over. Later calls of
  // this and of others have no effect.
  void Finish(TimePoint end, const absl::Status& status);

 private:
  struct Recorded {
    Span span;
    bool ended = false;
  };

  SpanRef Add(std::string name, SpanKind kind, SpanId parent, TimePoint start);

  TraceContext context_;
  SpanConsumer* consumer_;
  std::vector<Recorded> spans_;
  int64_t left_out_ = 0;
};

// Where in a trace a call is made: the span that becomes the parent of what the callee does.
struct TracePoint {
  std::shared_ptr<RequestTrace> trace = nullptr;  // null: the request belongs to no trace
  RequestTrace::SpanRef span = {};

  bool records() const { return trace != nullptr && trace->records(); }
  // A span below this one; none where nothing is recorded.
  TracePoint Begin(std::string name, SpanKind kind, TimePoint start) const;
  void End(TimePoint end, const absl::Status& status = absl::OkStatus()) const;
  bool is_open() const { return trace != nullptr && trace->IsOpen(span); }
  void Set(std::string key, SpanAttribute::Value value) const;
  // What the call has to carry; nothing where the request belongs to no trace.
  std::optional<TraceContext> context() const;
};

}  // namespace tandem
