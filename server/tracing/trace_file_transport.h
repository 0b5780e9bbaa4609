#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "tracing/span_exporter.h"

namespace tandem {

// Appends batches of spans to a file, one line each, in the form that OpenTelemetry's collector
// reads and writes. Before a line would make the file larger than its limit, the file is renamed to
// PATH.1, in place of an older one, and a new file begins. So the two files together have at most
// twice that size. Only the process's user may read them.
class TraceFileTransport final : public SpanTransport {
 public:
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<TraceFileTransport>> Open(std::string path,
                                                                  uint64_t max_bytes);

  SendResult Send(const std::string& batch, TimePoint deadline) override;
  void HurryUntil(TimePoint) override {}  // writing to a disk does not take long

 private:
  TraceFileTransport(std::string path, uint64_t max_bytes)
      : path_(std::move(path)), max_bytes_(max_bytes) {}
  absl::Status OpenFile();
  absl::Status Rotate();
  absl::Status Write(const std::string& line);

  const std::string path_;
  const uint64_t max_bytes_;
  UniqueFd file_;
  uint64_t bytes_ = 0;  // the size of the file
};

}  // namespace tandem
