#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace grpc {
class ServerContextBase;
}

namespace tandem {

// Refuses calls with more headers than --max-metadata-bytes. gRPC announces that limit to clients,
// but 1.51 takes more from those that do not heed it. Thread-safe.
class HeaderLimit {
 public:
  explicit HeaderLimit(int32_t most_bytes) : most_bytes_(most_bytes) {}

  // INVALID_ARGUMENT names the size of the call's headers if it exceeds the limit. It is counted as
  // HTTP/2 does: names and values, and 32 bytes for each header.
  absl::Status Check(const grpc::ServerContextBase& context);
  // How many calls were refused.
  uint64_t refused() const { return refused_; }

 private:
  const int32_t most_bytes_;
  std::atomic<uint64_t> refused_ = 0;
};

}  // namespace tandem
