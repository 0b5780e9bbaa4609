#include "router/attempt/streamed_output.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/finish_reason.h"
#include "base/status.h"

namespace tandem {
namespace {

void Append(const v1::WorkerTokens& from, int position, v1::WorkerTokens& to) {
  to.add_token_ids(from.token_ids(position));
  if (position < from.logprobs_size()) *to.add_logprobs() = from.logprobs(position);
}

}  // namespace

StreamedOutput::StreamedOutput(const v1::SequenceRequest& sequence)
    : sequence_(sequence), choices_(sequence.n()) {}

void StreamedOutput::ExpectFromStart() {
  for (Choice& choice : choices_) choice.received = 0;
}

void StreamedOutput::ExpectAfterEmitted() {
  for (Choice& choice : choices_) choice.received = choice.emitted.token_ids_size();
}

absl::StatusOr<v1::WorkerTokens> StreamedOutput::Add(const v1::WorkerTokens& tokens) {
  auto& [emitted, received] = choices_[tokens.index()];
  v1::WorkerTokens fresh;
  fresh.set_index(tokens.index());
  *fresh.mutable_stages() = tokens.stages();
  for (int i = 0; i < tokens.token_ids_size(); ++i, ++received) {
    const int32_t id = tokens.token_ids(i);
    TANDEM_CHECK(received <= emitted.token_ids_size(), "a position was left out");
    if (received < emitted.token_ids_size()) {
      if (emitted.token_ids(received) == id) continue;
      return Internal("token {} of choice {} is {} now, it was {}: please report this", received,
                      tokens.index(), id, emitted.token_ids(received));
    }
    emitted.add_token_ids(id);
    if (i < tokens.logprobs_size()) {
      emitted.set_cumulative_logprob(emitted.cumulative_logprob() +
                                     tokens.logprobs(i).sampled().logprob());
    }
    Append(tokens, i, fresh);
    any_ = true;
  }
  return fresh;
}

int32_t StreamedOutput::LeastEmitted() const {
  std::optional<int32_t> least;
  for (const Choice& choice : choices_) {
    if (choice.emitted.ended()) continue;
    const int32_t emitted = choice.emitted.token_ids_size();
    least = std::min(least.value_or(emitted), emitted);
  }
  return least.value_or(0);
}

v1::WorkerFinish::Reason StreamedOutput::ReasonOf(int32_t index) const {
  const auto& ids = choices_[index].emitted.token_ids();
  if (ids.empty()) return v1::WorkerFinish::REASON_UNSPECIFIED;
  switch (
      StopReasonOf(sequence_.stop_token_ids(), sequence_.max_tokens(), *ids.rbegin(), ids.size())) {
    case FinishReason::kStop:
      return v1::WorkerFinish::REASON_STOP;
    case FinishReason::kLength:
      return v1::WorkerFinish::REASON_LENGTH;
    default:
      return v1::WorkerFinish::REASON_UNSPECIFIED;
  }
}

v1::OutputSoFar StreamedOutput::Emitted(int32_t index) const {
  v1::OutputSoFar emitted = choices_[index].emitted;
  if (ReasonOf(index) != v1::WorkerFinish::REASON_UNSPECIFIED) emitted.set_ended(true);
  return emitted;
}

}  // namespace tandem
