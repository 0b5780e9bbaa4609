#include "router/request/choice.h"

#include <vector>

namespace tandem {
namespace {

// The most tokens of one chunk. With the most log-probabilities that a request may ask for, such a
// chunk has a quarter of a megabyte.
constexpr int kMaxChunkTokens = 1024;

std::vector<int32_t> ToVector(const google::protobuf::RepeatedField<int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

v1::FinishReason ToFinishReason(v1::WorkerFinish::Reason reason) {
  switch (reason) {
    case v1::WorkerFinish::REASON_STOP:
      return v1::FINISH_REASON_STOP;
    case v1::WorkerFinish::REASON_LENGTH:
      return v1::FINISH_REASON_LENGTH;
    default:  // the workers use no other reason for a choice that has ended
      return v1::FINISH_REASON_UNSPECIFIED;
  }
}

}  // namespace

Choice::Choice(const RequestSpec& spec, int32_t index, const Tokenizer* tokenizer)
    : spec_(spec),
      index_(index),
      text_(tokenizer, {.stop_strings = spec.stop_strings,
                        .stop_token_ids = ToVector(spec.sequence.stop_token_ids()),
                        .min_tokens = spec.sequence.sampling().min_tokens(),
                        .stop_text = spec.special.stop,
                        .special_text = spec.special.tokens,
                        .shown_special_ids = spec.special.shown_ids}) {
  times_.received = spec.received;
}

std::vector<v1::Chunk> Choice::Take(const v1::WorkerTokens& tokens, const v1::StageTimes& stages,
                                    TimePoint now) {
  times_.last_token = now;
  if (completion_tokens_ == 0) {
    times_.first_token = now;
    stages_ = stages;
  }
  std::vector<v1::Chunk> chunks;
  for (int i = 0; i < tokens.token_ids_size() && !text_.ended(); ++i) {
    if (i % kMaxChunkTokens == 0) chunks.emplace_back().set_index(index_);
    v1::Chunk& chunk = chunks.back();
    chunk.mutable_text()->append(text_.Push(tokens.token_ids(i)));
    chunk.add_token_ids(tokens.token_ids(i));
    ++completion_tokens_;
    if (i >= tokens.logprobs_size()) continue;
    cumulative_logprob_ += tokens.logprobs(i).sampled().logprob();
    if (spec_.logprobs == RequestSpec::Logprobs::kWanted) {
      *chunk.add_logprobs() = tokens.logprobs(i);
    }
  }
  if (!text_.matched_stop().empty()) reason_ = v1::FINISH_REASON_STOP;
  return chunks;
}

v1::Chunk Choice::End(const v1::WorkerChoiceFinish& finish) {
  reason_ = ToFinishReason(finish.reason());
  if (spec_.has_beams()) {
    cumulative_logprob_ = finish.cumulative_logprob();
    score_ = finish.score();
  }
  v1::Chunk chunk;
  chunk.set_index(index_);
  chunk.set_text(text_.Flush());
  if (!text_.matched_stop().empty()) reason_ = v1::FINISH_REASON_STOP;
  return chunk;
}

bool Choice::continues() const {
  return !ended() && !text_.ended() && completion_tokens_ < spec_.sequence.max_tokens();
}

v1::ChoiceFinish Choice::MakeFinish(const AttemptTimes& attempts, TimePoint now) const {
  v1::ChoiceFinish finish;
  finish.set_index(index_);
  finish.set_reason(reason_);
  finish.set_stop(text_.matched_stop());
  finish.set_completion_tokens(completion_tokens_);
  if (completion_tokens_ > 0) *finish.mutable_stages() = SplitTtft(times_, attempts, stages_);
  finish.set_tpot_ms(TimePerOutputTokenMs(times_, completion_tokens_));
  finish.set_e2e_ms(ToMilliseconds(now - times_.received));
  if (spec_.sequence.sampling().has_logprobs() || spec_.has_beams()) {
    finish.set_cumulative_logprob(cumulative_logprob_);
  }
  finish.set_score(score_);
  return finish;
}

}  // namespace tandem
