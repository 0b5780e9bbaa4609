#include "engine/sequence.h"

#include <algorithm>

namespace tandem {

FinishReason Sequence::StopReason() const {
  if (output.empty()) return FinishReason::kNone;
  const std::vector<int32_t>& stops = request.stop_token_ids;
  if (std::find(stops.begin(), stops.end(), output.back()) != stops.end()) {
    return FinishReason::kStop;
  }
  const auto max_tokens = static_cast<size_t>(request.max_tokens);
  return output.size() >= max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

SequenceSpec SpecOf(SequenceId id, const EngineRequest& request) {
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  return {.id = id,
          .prompt_tokens = prompt,
          .max_total_tokens = prompt + request.max_tokens - 1,
          .priority = request.priority,
          .deadline = request.deadline};
}

}  // namespace tandem
