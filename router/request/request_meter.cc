#include "router/request/request_meter.h"

#include <utility>

namespace tandem {

void RequestMeter::OnTokens(const Choice& choice, int32_t before, Duration gap) {
  const int32_t tokens = choice.completion_tokens() - before;
  if (tokens == 0) return;
  const TimePoint now = choice.last_token();
  if (!std::exchange(has_token_, true)) {
    metrics_.OnFirstToken(spec_.id, spec_.sequence.prompt_size(), now - spec_.received, now);
  }
  if (before == 0 || spec_.has_beams()) return metrics_.OnFirstTokensOfChoice(tokens);
  metrics_.OnTokens(spec_.id, tokens, gap, now);
}

void RequestMeter::OnEnd(const absl::Status& status, const std::optional<v1::ChoiceFinish>& longest,
                         int32_t completion_tokens, const AttemptReports& reports, TimePoint now) {
  metrics_.OnEnd(status);
  if (!status.ok() || !longest) return;
  metrics_.OnWhole({.id = spec_.id,
                    .longest = *longest,
                    .prompt_tokens = spec_.sequence.prompt_size(),
                    .completion_tokens = completion_tokens,
                    .cached_tokens = reports.cached_tokens,
                    .preemptions = reports.preemptions,
                    .looks_up_prefix = !spec_.sequence.has_prompt_logprobs(),
                    .streamed = !spec_.has_beams()},
                   now);
}

}  // namespace tandem
