#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "router/prefix/prefix_index.h"

namespace tandem {

// The expectation that a worker caches the prompt of one attempt; withdrawn on destruction unless
// the prompt was computed. Thread: the router's loop.
class PrefixClaim {
 public:
  PrefixClaim() = default;
  // Expects the worker to cache the prompt. `index` outlives the claim. If it is null, or the
  // prompt was not hashed, nothing is expected.
  PrefixClaim(PrefixIndex* index, const WorkerRef& worker,
              std::shared_ptr<const PromptHashes> prompt) {
    if (index == nullptr || prompt == nullptr) return;
    prompt_tokens_ = prompt->prompt_tokens;
    made_ = index->Expect(worker, std::move(prompt));
    if (made_.id == 0) return;
    index_ = index;
    worker_ = worker.id;
  }
  ~PrefixClaim() { Reset(); }
  PrefixClaim(const PrefixClaim&) = delete;
  PrefixClaim& operator=(PrefixClaim&& other) noexcept {
    Reset();
    index_ = std::exchange(other.index_, nullptr);
    worker_ = std::move(other.worker_);
    made_ = other.made_;
    prompt_tokens_ = other.prompt_tokens_;
    return *this;
  }

  // The tokens of the prompt that the worker is predicted to have cached already.
  int32_t predicted_tokens() const { return made_.predicted_tokens; }
  void OnComputed() {
    if (index_ != nullptr) index_->Fulfil(worker_, made_.id);
  }
  // Compares the prediction with `cached_tokens`, which the worker says that it had cached.
  void Record(int32_t cached_tokens) {
    if (index_ != nullptr) index_->Record(prompt_tokens_, made_.predicted_tokens, cached_tokens);
  }
  void Reset() {
    if (index_ != nullptr) std::exchange(index_, nullptr)->Withdraw(worker_, made_.id);
  }

 private:
  PrefixIndex* index_ = nullptr;
  WorkerId worker_;
  PrefixIndex::Expectation made_;
  int32_t prompt_tokens_ = 0;
};

}  // namespace tandem
