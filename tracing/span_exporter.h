#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"
#include "tracing/otlp_json.h"
#include "tracing/span.h"

namespace tandem {

// How a transport fared with one batch.
struct SendResult {
  enum class Kind : uint8_t {
    kTaken,
    kRetry,    // the same batch may be taken later
    kRefused,  // it never will be
  };
  Kind kind = Kind::kTaken;
  std::optional<Duration> retry_after = std::nullopt;  // at least so long, where the receiver says
  std::string why = {};                                // for the log, unless it was taken
};

// Where batches go.
class SpanTransport {
 public:
  virtual ~SpanTransport() = default;
  // On the exporter's thread, which it may block until `deadline`. `batch`: one line of JSON
  // without its line feed.
  virtual SendResult Send(const std::string& batch, TimePoint deadline) = 0;
  // The Send in progress and later ones are to return soon: nothing more than `deadline` allows. On
  // another thread.
  virtual void HurryUntil(TimePoint deadline) = 0;
};

struct SpanExporterOptions {
  size_t max_queued_spans = 8192;  // those beyond are dropped
  size_t max_batch_spans = 512;
  Duration max_delay = std::chrono::seconds(1);  // until a batch that is not full is sent
  Duration send_timeout = std::chrono::seconds(10);
  Duration first_back_off = std::chrono::seconds(1);  // doubled after each failure
  Duration most_back_off = std::chrono::seconds(30);
  Duration give_up_after = std::chrono::minutes(1);  // on one batch
};

struct SpanExportUse {
  uint64_t exported = 0;            // spans that were taken
  uint64_t dropped_queue_full = 0;  // because too many waited
  uint64_t dropped_not_taken = 0;   // because the receiver refused them or could not be reached
};

// Sends spans in batches from a thread of its own. Take never waits for the receiver: what does not
// fit into the queue is dropped and counted.
class SpanExporter final : public SpanConsumer {
 public:
  SpanExporter(SpanExporterOptions options, TraceResource resource,
               std::unique_ptr<SpanTransport> transport);
  // As Shutdown with a deadline that has passed.
  ~SpanExporter() override;

  void Take(std::vector<Span> spans) override;
  // Sends what is queued until `deadline`, drops the rest and ends the thread. Spans that come
  // later are dropped.
  void Shutdown(TimePoint deadline);
  SpanExportUse use() const;  // thread-safe

 private:
  void Run();
  // Waits until a batch is due. Empty: there is nothing left and the thread is to end.
  std::vector<EndedTrace> NextBatch();
  void Export(const std::vector<EndedTrace>& batch);
  // Waits until `until`. False when the batch has to be given up because the process ends before.
  bool Pause(TimePoint until);
  TimePoint StopBy();
  void Note(const SendResult& result, size_t spans);

  const SpanExporterOptions options_;
  const TraceResource resource_;
  const std::unique_ptr<SpanTransport> transport_;
  std::atomic<uint64_t> exported_ = 0;
  std::atomic<uint64_t> dropped_queue_full_ = 0;
  std::atomic<uint64_t> dropped_not_taken_ = 0;
  // These two belong to the exporter's thread.
  bool failing_ = false;  // the last batch was not taken
  TimePoint not_before_;  // the receiver is not asked earlier
  absl::Mutex mutex_;
  std::deque<EndedTrace> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_spans_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<TimePoint> stop_by_ ABSL_GUARDED_BY(mutex_);  // set by Shutdown
  MonotonicCondVar changed_;
  std::thread thread_;
};

}  // namespace tandem
