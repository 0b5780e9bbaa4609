#include "server/services/traced_call.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "router/client/trace_metadata.h"

namespace tandem {
namespace {

const char* NameOf(WorkerCallKind kind) {
  switch (kind) {
    case WorkerCallKind::kGenerate:
      return "worker generate";
    case WorkerCallKind::kReserve:
      return "worker reserve";
    case WorkerCallKind::kPrefill:
      return "worker prefill";
    case WorkerCallKind::kDecode:
      return "worker decode";
  }
  return "worker";
}

TimePoint SteadyNow() { return std::chrono::steady_clock::now(); }

// Adds spans for stages that follow one another. A stage that did not happen takes no time and gets
// no span.
class StageSpans {
 public:
  StageSpans(const TracePoint& call, TimePoint begin, TimePoint end)
      : call_(call), at_(begin), end_(end) {}

  void Add(const char* name, Duration took) { AddUntil(name, std::min(at_ + took, end_)); }
  void AddRest(const char* name) { AddUntil(name, end_); }

 private:
  void AddUntil(const char* name, TimePoint until) {
    if (until <= at_) return;
    call_.Begin(name, SpanKind::kInternal, at_).End(until);
    at_ = until;
  }

  const TracePoint& call_;
  TimePoint at_;
  const TimePoint end_;
};

// Adds the span of a KV transfer, with its numbers. If all KV had arrived before the call, the span
// has no length.
void AddKv(const TracePoint& call, const char* name, TimePoint begin, TimePoint end,
           const KvReport& kv) {
  if (kv.raw_bytes == 0) return;
  const TracePoint span = call.Begin(name, SpanKind::kInternal, begin);
  span.Set("tandem.kv.bytes", static_cast<int64_t>(kv.raw_bytes));
  if (kv.wire_bytes > 0) span.Set("tandem.kv.wire_bytes", static_cast<int64_t>(kv.wire_bytes));
  if (!kv.codec.empty()) span.Set("tandem.kv.codec", kv.codec);
  if (kv.hidden_bytes > 0)
    span.Set("tandem.kv.hidden_bytes", static_cast<int64_t>(kv.hidden_bytes));
  span.End(end);
}

class TracedSink final : public TokenSink {
 public:
  TracedSink(TracePoint call, WorkerCallKind kind, std::unique_ptr<TokenSink> next)
      : call_(std::move(call)), kind_(kind), next_(std::move(next)), begin_(SteadyNow()) {}

  void OnTokens(int32_t index, std::span<const SampledToken> tokens,
                const StageTimes& stages) override {
    tokens_ += static_cast<int64_t>(tokens.size());
    next_->OnTokens(index, tokens, stages);
  }
  void OnPromptLogprobs(int32_t first, std::span<const SampledToken> tokens) override {
    next_->OnPromptLogprobs(first, tokens);
  }
  void OnBeamStart(const SampledToken& first, const StageTimes& stages) override {
    next_->OnBeamStart(first, stages);
  }
  void OnChoiceEnd(const ChoiceEnd& end) override { next_->OnChoiceEnd(end); }

  // The spans are ended before the router learns of the request's end, so that they lie within
  // those of the router.
  void OnFinish(const FinishInfo& info) override {
    const TimePoint end = SteadyNow();
    AddStages(info, end);
    call_.Set("tandem.output_tokens", tokens_);
    call_.Set("tandem.cached_tokens", int64_t{info.cached_tokens});
    call_.Set("tandem.preemptions", int64_t{info.preemptions});
    call_.trace->Finish(end, info.status);
    next_->OnFinish(info);
  }

 private:
  void AddStages(const FinishInfo& info, TimePoint end) const {
    const StageTimes& times = info.stages;
    if (kind_ == WorkerCallKind::kDecode) {
      const TimePoint complete = std::min(begin_ + times.wait_kv, end);
      AddKv(call_, "receive_kv", begin_, complete, info.kv);
      return StageSpans(call_, complete, end).AddRest("decode");
    }
    StageSpans stages(call_, begin_, end);
    if (times.prefill == Duration{}) return;  // it failed before its prompt was computed
    stages.Add("queue", times.queue);
    stages.Add("prefill", times.prefill + times.transfer);
    if (kind_ == WorkerCallKind::kPrefill) {
      return AddKv(call_, "send_kv", std::max(begin_, end - info.kv.duration), end, info.kv);
    }
    stages.AddRest("decode");
  }

  const TracePoint call_;
  const WorkerCallKind kind_;
  const std::unique_ptr<TokenSink> next_;
  const TimePoint begin_;
  int64_t tokens_ = 0;
};

}  // namespace

TracePoint BeginWorkerCall(const Tracer* tracer, const grpc::ServerContextBase& context,
                           WorkerCallKind kind) {
  if (tracer == nullptr || !tracer->makes_spans()) return {};
  const std::optional<TraceContext> caller = TraceContextOf(context);
  if (!caller) return {};
  TracePoint point{.trace = tracer->Begin(caller)};
  if (point.records())
    point.span = point.trace->BeginFirst(NameOf(kind), SpanKind::kServer, SteadyNow());
  return point;
}

void EndWorkerCall(const TracePoint& call, const absl::Status& status) {
  if (call.records()) call.trace->Finish(SteadyNow(), status);
}

std::unique_ptr<TokenSink> TraceStages(TracePoint call, WorkerCallKind kind,
                                       std::unique_ptr<TokenSink> next) {
  if (!call.records()) return next;
  return std::make_unique<TracedSink>(std::move(call), kind, std::move(next));
}

}  // namespace tandem
