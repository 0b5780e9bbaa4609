#include "tests/support/recording_sink.h"

#include <algorithm>

#include "base/check.h"
#include "tests/support/call_site.h"
#include "tests/support/wait_limit.h"

namespace tandem {

class Recording::Sink final : public TokenSink {
 public:
  explicit Sink(Recording& recording) : recording_(recording) {}

  void OnTokens(int32_t index, std::span<const SampledToken> tokens,
                const StageTimes& stages) override {
    absl::MutexLock lock(&recording_.mutex_);
    CheckOpen(index);
    std::vector<std::vector<SampledToken>>& choices = recording_.tokens_;
    if (choices.empty()) recording_.first_stages_ = stages;
    if (choices.size() <= static_cast<size_t>(index)) choices.resize(index + 1);
    choices[index].insert(choices[index].end(), tokens.begin(), tokens.end());
  }

  void OnPromptLogprobs(int32_t first, std::span<const SampledToken> tokens) override {
    absl::MutexLock lock(&recording_.mutex_);
    TANDEM_CHECK(recording_.tokens_.empty(), "the prompt comes before the output");
    std::vector<SampledToken>& all = recording_.prompt_logprobs_;
    TANDEM_CHECK(first == std::ssize(all) + 1, "a position of the prompt is missing or came twice");
    all.insert(all.end(), tokens.begin(), tokens.end());
  }

  void OnBeamStart(const SampledToken& first, const StageTimes& stages) override {
    absl::MutexLock lock(&recording_.mutex_);
    TANDEM_CHECK(recording_.beam_start_.empty(), "a beam search starts once");
    recording_.first_stages_ = stages;
    recording_.beam_start_ = {first};
  }

  void OnChoiceEnd(const ChoiceEnd& end) override {
    absl::MutexLock lock(&recording_.mutex_);
    CheckOpen(end.index);
    recording_.choice_ends_.push_back(end);
  }

  void OnFinish(const FinishInfo& info) override {
    absl::MutexLock lock(&recording_.mutex_);
    recording_.finishes_.push_back(info);
  }

 private:
  void CheckOpen(int32_t index) const {
    recording_.mutex_.AssertHeld();
    TANDEM_CHECK(recording_.finishes_.empty(), "an event after the end");
    for (const ChoiceEnd& end : recording_.choice_ends_) {
      TANDEM_CHECK(end.index != index, "an event after a choice's end");
    }
  }

  Recording& recording_;
};

std::unique_ptr<TokenSink> Recording::NewSink() { return std::make_unique<Sink>(*this); }

bool Recording::AwaitTokens(size_t count, CallSite line) const {
  absl::MutexLock lock(&mutex_);
  const auto enough = [this, count] {
    mutex_.AssertReaderHeld();
    return count == 0 || (!tokens_.empty() && tokens_[0].size() >= count);
  };
  auto ready = [this, &enough] {
    mutex_.AssertReaderHeld();
    return enough() || !finishes_.empty();
  };
  AwaitWithin(mutex_, absl::Condition(&ready), "tokens or the end of a request", line);
  return enough();
}

bool Recording::AwaitFirstTokens(size_t choices, CallSite line) const {
  absl::MutexLock lock(&mutex_);
  const auto begun = [this, choices] {
    mutex_.AssertReaderHeld();
    const auto has_some = [](const std::vector<SampledToken>& tokens) { return !tokens.empty(); };
    const auto count = std::count_if(tokens_.begin(), tokens_.end(), has_some);
    return !beam_start_.empty() || static_cast<size_t>(count) >= choices;
  };
  auto ready = [this, &begun] {
    mutex_.AssertReaderHeld();
    return begun() || !finishes_.empty();
  };
  AwaitWithin(mutex_, absl::Condition(&ready), "first tokens or the end of a request", line);
  return begun();
}

FinishInfo Recording::AwaitFinish(CallSite line) const {
  absl::MutexLock lock(&mutex_);
  auto ended = [this] {
    mutex_.AssertReaderHeld();
    return !finishes_.empty();
  };
  AwaitWithin(mutex_, absl::Condition(&ended), "the end of a request", line);
  return finishes_.front();
}

bool Recording::finished() const { return num_finishes() > 0; }

int Recording::num_finishes() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(finishes_.size());
}

std::vector<int32_t> Recording::token_ids(int32_t index) const {
  absl::MutexLock lock(&mutex_);
  std::vector<int32_t> ids;
  if (static_cast<size_t>(index) >= tokens_.size()) return ids;
  for (const SampledToken& token : tokens_[index]) ids.push_back(token.token_id);
  return ids;
}

std::vector<SampledToken> Recording::tokens(int32_t index) const {
  absl::MutexLock lock(&mutex_);
  if (static_cast<size_t>(index) >= tokens_.size()) return {};
  return tokens_[index];
}

std::vector<SampledToken> Recording::first_tokens() const {
  absl::MutexLock lock(&mutex_);
  if (!beam_start_.empty()) return beam_start_;
  std::vector<SampledToken> first;
  for (const std::vector<SampledToken>& tokens : tokens_) first.push_back(tokens.front());
  return first;
}

std::vector<SampledToken> Recording::prompt_logprobs() const {
  absl::MutexLock lock(&mutex_);
  return prompt_logprobs_;
}

std::vector<ChoiceEnd> Recording::choice_ends() const {
  absl::MutexLock lock(&mutex_);
  return choice_ends_;
}

StageTimes Recording::first_stages() const {
  absl::MutexLock lock(&mutex_);
  return first_stages_;
}

}  // namespace tandem
