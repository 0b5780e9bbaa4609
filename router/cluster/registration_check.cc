#include "router/cluster/registration_check.h"

#include <algorithm>
#include <cstddef>

#include "base/simulated_model.h"
#include "base/status.h"
#include "router/cluster/load_check.h"

namespace tandem {
namespace {

// Checks the fields that only workers that take part in hand-offs need.
absl::Status CheckHandsOver(const v1::RegisterRequest& request) {
  if (request.role() == v1::WORKER_ROLE_DECODE && request.data_address().empty()) {
    return InvalidArgument("data_address is empty: a decode worker needs one for KV");
  }
  if (request.wire_version() <= 0) return InvalidArgument("wire_version is missing");
  return absl::OkStatus();
}

absl::Status CheckComplete(const v1::RegisterRequest& request) {
  if (request.name().empty()) return InvalidArgument("name is empty: a worker needs one");
  if (request.incarnation() == 0) return InvalidArgument("incarnation is 0: use the start time");
  if (request.address().empty()) return InvalidArgument("address is empty: give host:port");
  if (request.max_context_tokens() < 2) {
    return InvalidArgument("max_context_tokens={} must be at least 2",
                           request.max_context_tokens());
  }
  if (request.layout().num_layers() <= 0 || request.layout().dtype().empty()) {
    return InvalidArgument("layout is empty: a worker must say how it stores KV");
  }
  // Routers hash prompts in blocks of this many tokens to predict prefix hits.
  const int32_t block_tokens = request.layout().block_tokens();
  if (request.prefix_root() != 0 && (block_tokens < 8 || block_tokens > 256)) {
    return InvalidArgument(
        "layout.block_tokens={} must be 8 to 256 where prefix_root names a prefix cache",
        block_tokens);
  }
  switch (request.role()) {
    case v1::WORKER_ROLE_UNIFIED:
      return absl::OkStatus();
    case v1::WORKER_ROLE_PREFILL:
    case v1::WORKER_ROLE_DECODE:
      return CheckHandsOver(request);
    default:
      return InvalidArgument("role={} is none of unified, prefill and decode",
                             static_cast<int>(request.role()));
  }
}

// Checks text that is written to logs, metrics and refusals.
absl::Status CheckText(std::string_view field, std::string_view text, size_t most_bytes) {
  if (text.size() > most_bytes) {
    return InvalidArgument("{} has {} bytes; at most {} are taken", field, text.size(), most_bytes);
  }
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; };
  if (std::none_of(text.begin(), text.end(), is_control)) return absl::OkStatus();
  return InvalidArgument("{} may hold no control characters", field);
}

// A client sees by the model's name that tokens are made up: simulated workers, and only these, may
// serve a model of such a name.
absl::Status CheckSimulated(const v1::RegisterRequest& request) {
  if (request.simulated() == IsSimulatedModel(request.model())) return absl::OkStatus();
  if (request.simulated()) {
    return InvalidArgument("model {}: the name of a simulated one begins with {}", request.model(),
                           kSimulatedModelPrefix);
  }
  return InvalidArgument("model {}: names that begin with {} are for simulated devices",
                         request.model(), kSimulatedModelPrefix);
}

}  // namespace

absl::Status CheckName(std::string_view field, std::string_view name) {
  constexpr size_t kMaxBytes = 128;
  if (name.size() > kMaxBytes) {
    return InvalidArgument("{} has {} bytes; at most {} are taken", field, name.size(), kMaxBytes);
  }
  const auto printable = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!std::all_of(name.begin(), name.end(), printable)) {
    return InvalidArgument("{} may hold printable ASCII without spaces only", field);
  }
  return absl::OkStatus();
}

absl::Status CheckRegistration(const v1::RegisterRequest& request) {
  constexpr size_t kMaxAddressBytes = 256;
  constexpr size_t kMaxDataAddressBytes = 4096;  // room for one address per transport
  RETURN_IF_ERROR(CheckName("name", request.name()));
  RETURN_IF_ERROR(CheckText("address", request.address(), kMaxAddressBytes));
  RETURN_IF_ERROR(CheckText("data_address", request.data_address(), kMaxDataAddressBytes));
  RETURN_IF_ERROR(CheckText("device", request.device(), kMaxAddressBytes));
  RETURN_IF_ERROR(CheckText("model", request.model(), kMaxAddressBytes));
  RETURN_IF_ERROR(CheckText("layout.dtype", request.layout().dtype(), kMaxAddressBytes));
  RETURN_IF_ERROR(CheckComplete(request));
  RETURN_IF_ERROR(CheckSimulated(request));
  return CheckLoad(request.load());
}

}  // namespace tandem
