#include "engine/request_checks.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "engine/sequence.h"

namespace tandem {
namespace {

// Of a choice that goes on: it has not said all that it may, nor what ends it.
absl::Status CheckGoesOn(const EngineRequest& request, size_t index) {
  const OutputSoFar& choice = request.so_far[index];
  if (!std::isfinite(choice.cumulative_logprob)) {
    return InvalidArgument("so_far[{}]: the log-probability is {}", index,
                           choice.cumulative_logprob);
  }
  if (std::ssize(choice.token_ids) >= request.max_tokens) {
    return InvalidArgument("so_far[{}] has {} tokens of at most {}: it has ended", index,
                           choice.token_ids.size(), request.max_tokens);
  }
  for (const int32_t token : choice.token_ids) {
    if (StopReasonOf(request, token, 0) == FinishReason::kNone) continue;
    return InvalidArgument("so_far[{}] has stop token {}: it has ended", index, token);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTokens(std::string_view what, std::span<const int32_t> ids, int32_t vocab_size) {
  const auto outside = [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; };
  const auto bad = std::find_if(ids.begin(), ids.end(), outside);
  if (bad == ids.end()) return absl::OkStatus();
  return InvalidArgument("{}[{}] is {}: token ids go from 0 to {}", what, bad - ids.begin(), *bad,
                         vocab_size - 1);
}

absl::Status CheckSoFar(const EngineRequest& request, int32_t vocab_size) {
  if (request.so_far.empty()) return absl::OkStatus();
  if (request.beams) return InvalidArgument("so_far: a beam search begins anew");
  if (std::ssize(request.so_far) != request.n) {
    return InvalidArgument("so_far has {} choices, the request {}", request.so_far.size(),
                           request.n);
  }
  bool goes_on = false;
  for (size_t i = 0; i < request.so_far.size(); ++i) {
    if (request.so_far[i].ended) continue;
    goes_on = true;
    RETURN_IF_ERROR(CheckTokens("so_far", request.so_far[i].token_ids, vocab_size));
    RETURN_IF_ERROR(CheckGoesOn(request, i));
  }
  return goes_on ? absl::OkStatus() : InvalidArgument("so_far: every choice has ended");
}

}  // namespace tandem
