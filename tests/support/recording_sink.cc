#include "tests/support/recording_sink.h"

#include "base/check.h"

namespace tandem {

class Recording::Sink final : public TokenSink {
 public:
  explicit Sink(Recording& recording) : recording_(recording) {}

  void OnTokens(std::span<const SampledToken> tokens, const StageTimes& stages) override {
    absl::MutexLock lock(&recording_.mutex_);
    TANDEM_CHECK(recording_.finishes_.empty(), "tokens after the end");
    if (recording_.token_ids_.empty()) recording_.first_stages_ = stages;
    for (const SampledToken& token : tokens) recording_.token_ids_.push_back(token.token_id);
  }

  void OnFinish(const FinishInfo& info) override {
    absl::MutexLock lock(&recording_.mutex_);
    recording_.finishes_.push_back(info);
  }

 private:
  Recording& recording_;
};

std::unique_ptr<TokenSink> Recording::NewSink() { return std::make_unique<Sink>(*this); }

bool Recording::AwaitTokens(size_t count) const {
  absl::MutexLock lock(&mutex_);
  auto ready = [this, count] {
    mutex_.AssertReaderHeld();
    return token_ids_.size() >= count || !finishes_.empty();
  };
  mutex_.Await(absl::Condition(&ready));
  return token_ids_.size() >= count;
}

FinishInfo Recording::AwaitFinish() const {
  absl::MutexLock lock(&mutex_);
  auto ended = [this] {
    mutex_.AssertReaderHeld();
    return !finishes_.empty();
  };
  mutex_.Await(absl::Condition(&ended));
  return finishes_.front();
}

bool Recording::finished() const { return num_finishes() > 0; }

int Recording::num_finishes() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(finishes_.size());
}

std::vector<int32_t> Recording::token_ids() const {
  absl::MutexLock lock(&mutex_);
  return token_ids_;
}

StageTimes Recording::first_stages() const {
  absl::MutexLock lock(&mutex_);
  return first_stages_;
}

}  // namespace tandem
