#include "router/attempt/told_output.h"

#include <algorithm>

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

ToldOutput::ToldOutput(const v1::SequenceRequest& sequence)
    : sequence_(sequence), choices_(sequence.n()), heard_(sequence.n()) {}

void ToldOutput::ListenFromStart() { std::fill(heard_.begin(), heard_.end(), 0); }

void ToldOutput::ListenBehind() {
  for (size_t i = 0; i < choices_.size(); ++i) heard_[i] = choices_[i].token_ids_size();
}

absl::StatusOr<v1::WorkerTokens> ToldOutput::Take(const v1::WorkerTokens& tokens) {
  v1::OutputSoFar& choice = choices_[tokens.index()];
  int& heard = heard_[tokens.index()];
  v1::WorkerTokens fresh;
  fresh.set_index(tokens.index());
  *fresh.mutable_stages() = tokens.stages();
  for (int i = 0; i < tokens.token_ids_size(); ++i, ++heard) {
    const int32_t id = tokens.token_ids(i);
    TANDEM_CHECK(heard <= choice.token_ids_size(), "a token was passed over");
    if (heard < choice.token_ids_size()) {
      if (choice.token_ids(heard) == id) continue;
      return Internal("token {} of choice {} is {} now, it was {}: please report this", heard,
                      tokens.index(), id, choice.token_ids(heard));
    }
    choice.add_token_ids(id);
    if (i < tokens.logprobs_size()) {
      choice.set_cumulative_logprob(choice.cumulative_logprob() +
                                    tokens.logprobs(i).sampled().logprob());
    }
    Append(tokens, i, fresh);
    any_ = true;
  }
  return fresh;
}

v1::WorkerFinish::Reason ToldOutput::ReasonOf(int32_t index) const {
  const auto& told = choices_[index].token_ids();
  if (told.empty()) return v1::WorkerFinish::REASON_UNSPECIFIED;
  switch (StopReasonOf(sequence_.stop_token_ids(), sequence_.max_tokens(), *told.rbegin(),
                       told.size())) {
    case FinishReason::kStop:
      return v1::WorkerFinish::REASON_STOP;
    case FinishReason::kLength:
      return v1::WorkerFinish::REASON_LENGTH;
    default:
      return v1::WorkerFinish::REASON_UNSPECIFIED;
  }
}

v1::OutputSoFar ToldOutput::SoFar(int32_t index) const {
  v1::OutputSoFar so_far = choices_[index];
  if (ReasonOf(index) != v1::WorkerFinish::REASON_UNSPECIFIED) so_far.set_ended(true);
  return so_far;
}

}  // namespace tandem
