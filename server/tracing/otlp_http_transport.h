#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tracing/span_exporter.h"

namespace tandem {

// Posts batches to a collector (OTLP/HTTP with JSON). What may be repeated is what the specification of
// OTLP says: answers 429, 502, 503 and 504, for which Retry-After counts, and connections that fail.
class OtlpHttpTransport final : public SpanTransport {
 public:
  // `headers`: lines that go with each batch, as TraceHeaders gives them.
  explicit OtlpHttpTransport(std::string url, std::vector<std::string> headers = {});

  SendResult Send(const std::string& batch, TimePoint deadline) override;
  void HurryUntil(TimePoint deadline) override { stop_by_ = deadline.time_since_epoch().count(); }

 private:
  bool IsLate() const;
  // Without the URL's path.
  std::string Shown(std::string text) const;

  const std::string url_;
  const std::vector<std::string> headers_;
  const std::string shown_;  // without its path, which may hold what only the receiver should know
  std::atomic<int64_t> stop_by_ = kNoDeadline.time_since_epoch().count();
};

}  // namespace tandem
