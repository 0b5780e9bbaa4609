#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// HTTP for whoever watches a process: GET /metrics is `page`, made for each call, and GET /healthz
// answers 200 while `is_ready`, else 503. Both are called on threads of this, at most two at once.
class MetricsServer {
 public:
  struct Pages {
    std::function<std::string()> metrics;
    std::function<bool()> is_ready;
  };

  // Listens on `host`:`port`; port 0: a free one. UNAVAILABLE, naming the address.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& host,
                                                              uint16_t port, Pages pages);
  // No page is being made any more afterwards.
  ~MetricsServer();

  uint16_t port() const;

 private:
  struct Parts;
  explicit MetricsServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
