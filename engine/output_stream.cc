#include "engine/output_stream.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {

OutputStream& OutputStream::operator=(OutputStream&& other) noexcept {
  std::swap(sink_, other.sink_);
  return *this;
}

OutputStream::~OutputStream() {
  if (open()) Fail(Internal("the request was dropped without an answer: please report this"));
}

void OutputStream::Emit(int32_t index, std::span<const SampledToken> tokens,
                        const StageTimes& stages) {
  TANDEM_CHECK(open(), "tokens for a stream that has ended");
  sink_->OnTokens(index, tokens, stages);
}

void OutputStream::EmitPromptLogprobs(int32_t first, std::span<const SampledToken> tokens) {
  TANDEM_CHECK(open(), "log-probabilities for a stream that has ended");
  sink_->OnPromptLogprobs(first, tokens);
}

void OutputStream::EmitBeamStart(const SampledToken& first, const StageTimes& stages) {
  TANDEM_CHECK(open(), "a beam start for a stream that has ended");
  sink_->OnBeamStart(first, stages);
}

void OutputStream::EndChoice(const ChoiceEnd& end) {
  TANDEM_CHECK(open(), "the end of a choice for a stream that has ended");
  sink_->OnChoiceEnd(end);
}

void OutputStream::Finish(const FinishInfo& info) {
  TANDEM_CHECK(open(), "a stream ends once");
  // The sink is taken out before the call, so that nothing it does can end the stream twice.
  const std::unique_ptr<TokenSink> sink = std::move(sink_);
  sink->OnFinish(info);
}

void OutputStream::Fail(const absl::Status& status) { Finish({.status = status}); }

}  // namespace tandem
