#include "server/services/message_limit.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace tandem {

absl::Status RequestTooLarge(uint64_t bytes, uint64_t max_bytes) {
  return InvalidArgument(
      "the request has {} bytes; at most {} are taken (--max-message-bytes of the router)", bytes,
      max_bytes);
}

std::optional<absl::Status> ReadTooLarge(std::string_view grpc_message) {
  absl::string_view rest(grpc_message.data(), grpc_message.size());
  // message_size_filter.cc of gRPC: "Received message larger than max (SIZE vs. LIMIT)".
  if (!absl::ConsumePrefix(&rest, "Received message larger than max (") ||
      !absl::ConsumeSuffix(&rest, ")")) {
    return std::nullopt;
  }
  const std::vector<std::string> numbers = absl::StrSplit(rest, " vs. ");
  uint64_t bytes = 0;
  uint64_t limit = 0;
  if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &bytes) ||
      !absl::SimpleAtoi(numbers[1], &limit)) {
    return std::nullopt;
  }
  return RequestTooLarge(bytes, limit / kGrpcLimitFactor);
}

}  // namespace tandem
