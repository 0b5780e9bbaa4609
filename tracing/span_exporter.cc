#include "tracing/span_exporter.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "tracing/trace_context.h"

namespace tandem {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

// Looked up once per request, so that spans stay right when the clock of the day is set.
Duration UnixOffset() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<Duration>(since_1970) - Now().time_since_epoch();
}

// Half to all of it, so that processes that failed together do not all come back together.
Duration Jittered(Duration pause) {
  const auto half = pause / 2;
  return half + Duration(NewSpanId() % static_cast<uint64_t>(half.count() + 1));
}

size_t CountSpans(const std::vector<EndedTrace>& traces) {
  size_t spans = 0;
  for (const EndedTrace& trace : traces) spans += trace.spans.size();
  return spans;
}

}  // namespace

SpanExporter::SpanExporter(SpanExporterOptions options, TraceResource resource,
                           std::unique_ptr<SpanTransport> transport)
    : options_(options),
      resource_(std::move(resource)),
      transport_(std::move(transport)),
      thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() { Shutdown(Now()); }

void SpanExporter::Take(std::vector<Span> spans) {
  const size_t count = spans.size();
  const Duration offset = UnixOffset();
  bool due = false;
  {
    absl::MutexLock lock(&mutex_);
    if (stop_by_ || queued_spans_ + count > options_.max_queued_spans) {
      dropped_queue_full_ += count;
      return;
    }
    due = queue_.empty() || queued_spans_ + count >= options_.max_batch_spans;
    queue_.push_back({.spans = std::move(spans), .unix_offset = offset});
    queued_spans_ += count;
  }
  if (due) changed_.Signal();
}

void SpanExporter::Shutdown(TimePoint deadline) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stop_by_) stop_by_ = deadline;
  }
  transport_->HurryUntil(deadline);
  changed_.Signal();
  if (thread_.joinable()) thread_.join();
}

SpanExportUse SpanExporter::use() const {
  return {.exported = exported_,
          .dropped_queue_full = dropped_queue_full_,
          .dropped_not_taken = dropped_not_taken_};
}

void SpanExporter::Run() {
  NameThisThread("trace-export");
  for (std::vector<EndedTrace> batch = NextBatch(); !batch.empty(); batch = NextBatch()) {
    Export(batch);
  }
}

std::vector<EndedTrace> SpanExporter::NextBatch() {
  absl::MutexLock lock(&mutex_);
  changed_.AwaitUntil(mutex_, kNoDeadline, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop_by_.has_value() || !queue_.empty();
  });
  changed_.AwaitFor(mutex_, options_.max_delay, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop_by_.has_value() || queued_spans_ >= options_.max_batch_spans;
  });
  std::vector<EndedTrace> batch;
  size_t spans = 0;
  while (!queue_.empty() && spans < options_.max_batch_spans) {
    spans += queue_.front().spans.size();
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queued_spans_ -= spans;
  return batch;
}

void SpanExporter::Export(const std::vector<EndedTrace>& batch) {
  const std::string body = ToOtlpJson(resource_, batch);
  const TimePoint give_up = Now() + options_.give_up_after;
  Duration back_off = options_.first_back_off;
  SendResult result{.kind = SendResult::Kind::kRetry,
                    .why = "the process ends before the receiver wants to be asked again"};
  // An earlier batch may have learnt that the receiver is not to be asked yet.
  while (Pause(not_before_)) {
    result = transport_->Send(body, std::min(Now() + options_.send_timeout, StopBy()));
    if (result.kind != SendResult::Kind::kRetry) break;
    not_before_ = Now() + std::max(Jittered(back_off), result.retry_after.value_or(Duration{}));
    back_off = std::min(back_off * 2, options_.most_back_off);
    if (not_before_ >= give_up) break;
  }
  Note(result, CountSpans(batch));
}

bool SpanExporter::Pause(TimePoint until) {
  absl::MutexLock lock(&mutex_);
  changed_.AwaitUntil(mutex_, until, [this, until]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop_by_.has_value() && *stop_by_ <= until;
  });
  return !stop_by_ || *stop_by_ > until;
}

TimePoint SpanExporter::StopBy() {
  absl::MutexLock lock(&mutex_);
  return stop_by_.value_or(kNoDeadline);
}

void SpanExporter::Note(const SendResult& result, size_t spans) {
  const bool taken = result.kind == SendResult::Kind::kTaken;
  (taken ? exported_ : dropped_not_taken_) += spans;
  if (taken == !failing_) return;
  failing_ = !taken;
  if (taken) return LogInfo("trace export works again");
  LogWarn("trace export failed, spans are dropped spans={} why=\"{}\"", spans, result.why);
}

}  // namespace tandem
