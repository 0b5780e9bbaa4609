#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "router/request/choice_text.h"
#include "router/request/request_spec.h"
#include "router/request/stages.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// One choice of a request while its tokens arrive: its text, and what its finish will report.
// Thread: the router's loop. `spec` and the tokenizer outlive it.
class Choice {
 public:
  // tokenizer: null where choices have token ids only, and no text.
  Choice(const RequestSpec& spec, int32_t index, const Tokenizer* tokenizer);

  // Returns the next tokens as the client gets them: none that follow a stop string or a stop
  // token. The choice has ended once a stop string has come. A beam search brings many tokens in
  // one message; they are returned in several chunks, because clients bound the size of a message.
  // stages: where the time before the choice's first token went at the workers.
  std::vector<v1::Chunk> Take(const v1::WorkerTokens& tokens, const v1::StageTimes& stages,
                              TimePoint now);
  // The worker says how the choice ended. Returns the text that was held back.
  v1::Chunk End(const v1::WorkerChoiceFinish& finish);

  bool ended() const { return reason_ != v1::FINISH_REASON_UNSPECIFIED; }
  // Whether tokens may follow. False once the last token has come, also before its worker says how
  // the choice ended.
  bool continues() const;
  // Why the choice ended; unspecified until it has.
  v1::FinishReason reason() const { return reason_; }
  int32_t completion_tokens() const { return completion_tokens_; }
  // When the latest tokens came; meaningless before the first.
  TimePoint last_token() const { return times_.last_token; }
  // The finish of a choice that has ended, without the route, the workers and the KV.
  v1::ChoiceFinish MakeFinish(const AttemptTimes& attempts, TimePoint now) const;

 private:
  const RequestSpec& spec_;
  const int32_t index_;
  ChoiceText text_;
  ChoiceTimes times_;
  v1::StageTimes stages_;
  v1::FinishReason reason_ = v1::FINISH_REASON_UNSPECIFIED;
  int32_t completion_tokens_ = 0;
  double cumulative_logprob_ = 0;
  double score_ = 0;
};

}  // namespace tandem
