#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tracing/span_exporter.h"

namespace tandem {

// Posts batches of spans to a collector by OTLP/HTTP with JSON. As OTLP specifies, a batch may be
// sent again after the answers 429, 502, 503 and 504, which may have a Retry-After, and after a
// failed connection.
class OtlpHttpTransport final : public SpanTransport {
 public:
  // `headers`: lines that go with each batch, as TraceHeaders gives them.
  explicit OtlpHttpTransport(std::string url, std::vector<std::string> headers = {});

  SendResult Send(const std::string& batch, TimePoint deadline) override;
  void HurryUntil(TimePoint deadline) override { stop_by_ = deadline.time_since_epoch().count(); }

 private:
  bool IsLate() const;
  // The text with the URL replaced by one without its path, for logs.
  std::string Shown(std::string text) const;

  const std::string url_;
  const std::vector<std::string> headers_;
  const std::string shown_;  // the URL for logs: its path, which may be secret, is left out
  std::atomic<int64_t> stop_by_ = kNoDeadline.time_since_epoch().count();
};

}  // namespace tandem
