#include "server/services/header_limit.h"

#include <grpcpp/server_context.h>

#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kBytesPerHeader = 32;  // RFC 9113, SETTINGS_MAX_HEADER_LIST_SIZE

}  // namespace

absl::Status HeaderLimit::Check(const grpc::ServerContextBase& context) {
  size_t bytes = 0;
  for (const auto& [name, value] : context.client_metadata()) {
    bytes += name.size() + value.size() + kBytesPerHeader;
  }
  if (bytes <= static_cast<size_t>(most_bytes_)) return absl::OkStatus();
  ++refused_;
  return InvalidArgument(
      "the call has {} bytes of headers; at most {} are taken (--max-metadata-bytes of the router)",
      bytes, most_bytes_);
}

}  // namespace tandem
