// What routers say to a worker, of foreign bytes, up to where the engine takes it. The first byte
// chooses the message.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/request_checks.h"
#include "server/services/parse_message.h"
#include "server/services/worker_messages.h"

namespace tandem {
namespace {

constexpr EngineLimits kLimits = {.vocab_size = 1000, .max_context_tokens = 512, .max_width = 64};

// What is let through can be computed.
void ExpectComputable(const EngineRequest& request) {
  TANDEM_CHECK(!request.prompt.empty(), "nothing to compute");
  TANDEM_CHECK(request.max_tokens >= (request.prompt_logprobs >= 0 ? 0 : 1), "nothing to decode");
  TANDEM_CHECK(std::ssize(request.prompt) + request.max_tokens <= kLimits.max_context_tokens,
               "beyond the context");
  TANDEM_CHECK(request.n >= 1 && WidthOf(request) >= request.n && WidthOf(request) <= 64, "rows");
  TANDEM_CHECK(std::isfinite(request.sampling.temperature) && request.sampling.top_p > 0,
               "sampling that cannot be");
  for (const OutputSoFar& choice : request.so_far) {
    TANDEM_CHECK(choice.ended || std::ssize(choice.token_ids) < request.max_tokens, "so far");
  }
  const std::vector<int32_t>& forced = request.constraints.forced_token_ids;
  TANDEM_CHECK(forced.empty() || std::ssize(forced) == request.max_tokens, "a forced output's end");
  for (const int32_t id : forced) {
    TANDEM_CHECK(id >= 0 && id < kLimits.vocab_size, "a forced token that there is not");
  }
  for (const int32_t id : request.prompt) {
    TANDEM_CHECK(id >= 0 && id < kLimits.vocab_size, "a token that there is not");
  }
}

void OfGenerate(std::string_view bytes) {
  v1::GenerateOnWorkerRequest message;
  if (!ParseMessage(bytes, message).ok()) return;
  const EngineRequest request = ToEngineRequest(message, kNoDeadline);
  if (CheckRequest(request, kLimits).ok()) ExpectComputable(request);
}

void OfDecode(std::string_view bytes) {
  v1::DecodeRequest message;
  if (!ParseMessage(bytes, message).ok()) return;
  const DecodeRequest decode = ToDecodeRequest(message, kNoDeadline);
  if (!CheckDecode(decode, kLimits).ok()) return;
  ExpectComputable(decode.request);
  if (!decode.request.so_far.empty()) return;
  TANDEM_CHECK(decode.first_tokens.size() ==
                   static_cast<size_t>(decode.request.beams ? 1 : decode.request.n),
               "a choice without its first token");
}

void OfPrefill(std::string_view bytes) {
  v1::PrefillRequest message;
  if (!ParseMessage(bytes, message).ok()) return;
  const EngineRequest request = ToEngineRequest(message.sequence(), kNoDeadline);
  if (CheckRequest(request, kLimits).ok()) ExpectComputable(request);
  const absl::StatusOr<HandoffTarget> target = ToHandoffTarget(message);
  if (!target.ok()) return;
  TANDEM_CHECK(target->cached_tokens >= 0 &&
                   static_cast<size_t>(target->cached_tokens) <= request.prompt.size(),
               "more cached than there is");
  TANDEM_CHECK(target->lease >= Duration::zero(), "a lease that overflowed");
}

void OfReserve(std::string_view bytes) {
  v1::ReserveRequest message;
  if (!ParseMessage(bytes, message).ok()) return;
  const absl::StatusOr<ReserveRequest> request = ToReserveRequest(message, kNoDeadline);
  if (!request.ok()) return;
  TANDEM_CHECK(request->layout.Validate().ok(), "a layout that cannot be");
  TANDEM_CHECK(
      request->layout.ExtentBytes() > 0 && request->layout.ExtentBytes() <= kMaxExtentBytes,
      "extents that no frame carries");
  TANDEM_CHECK(
      ToProto(request->layout).SerializeAsString() == message.layout().SerializeAsString() ||
          message.layout().GetReflection()->GetUnknownFields(message.layout()).field_count() > 0,
      "a layout that is not what was said");
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      OfGenerate(bytes);
      break;
    case 1:
      OfDecode(bytes);
      break;
    case 2:
      OfPrefill(bytes);
      break;
    default:
      OfReserve(bytes);
  }
  return 0;
}
