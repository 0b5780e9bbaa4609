#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "scheduler/latency_model/placement_model.h"

namespace tandem {

// The scheduler that the placement model predicts, run one step after the other. `worker` must outlive
// it.
class StepByStep {
 public:
  explicit StepByStep(const WorkerState& worker)
      : worker_(worker),
        decoding_(worker.decoding),
        waiting_(worker.waiting.begin(), worker.waiting.end()) {
    capacity_ = static_cast<double>(worker.available_kv_tokens);
    for (const DecodeGroup& one : decoding_) capacity_ += one.context_tokens;
  }

  ModelTime Ttft(const RequestShape& request) {
    Admit();
    std::vector<DecodeGroup> decoding;
    std::deque<Prompt> prompts;
    double ms =
        StepMs(Take(prompts_, worker_.max_step_tokens - std::ssize(decoding_), nullptr)) / 2;
    waiting_.push_back(
        {.new_tokens = request.prompt_tokens, .output_tokens = request.output_tokens});
    waiting_.back().count = -1;  // the subject
    while (!served_) {
      Admit();
      const int64_t budget = std::max<int64_t>(1, worker_.max_step_tokens - std::ssize(decoding_));
      std::vector<DecodeGroup> ended;
      const double tokens = Take(prompts_, budget, &ended);
      ms += StepMs(tokens);
      for (DecodeGroup& one : decoding_) {
        one.context_tokens += 1;
        one.remaining_tokens -= 1;
      }
      std::erase_if(decoding_, [](const DecodeGroup& one) { return one.remaining_tokens <= 0; });
      for (const DecodeGroup& one : ended) {
        if (one.remaining_tokens > 0) decoding_.push_back(one);
      }
    }
    return ModelTime(ms);
  }

 private:
  struct Prompt {
    WaitingGroup group;
    int32_t left = 0;
  };

  // Takes a step's tokens from the front; `ended` gets what decodes from then on. Without it
  // nothing changes.
  double Take(std::deque<Prompt>& prompts, int64_t budget, std::vector<DecodeGroup>* ended) {
    int64_t taken = 0;
    size_t done = 0;
    for (Prompt& prompt : prompts) {
      const auto tokens = static_cast<int32_t>(std::min<int64_t>(prompt.left, budget - taken));
      if (tokens == 0) break;
      taken += tokens;
      if (ended == nullptr) continue;
      prompt.left -= tokens;
      if (prompt.left > 0) break;
      ++done;
      served_ = served_ || prompt.group.count < 0;
      ended->push_back(
          {.context_tokens = 1.0 + prompt.group.cached_tokens + prompt.group.new_tokens,
           .remaining_tokens = prompt.group.output_tokens - 1});
    }
    prompts.erase(prompts.begin(), prompts.begin() + static_cast<ptrdiff_t>(done));
    return static_cast<double>(taken);
  }

  double StepMs(double tokens) const {
    double context = 0;
    for (const DecodeGroup& one : decoding_) context += one.context_tokens;
    return worker_.steps->StepMs(tokens, 0, static_cast<double>(decoding_.size()), context);
  }

  void Admit() {
    while (!waiting_.empty() && Fits(waiting_.front())) {
      prompts_.push_back({waiting_.front(), waiting_.front().new_tokens});
      waiting_.pop_front();
    }
  }

  // Tries every moment to come.
  bool Fits(const WaitingGroup& next) const {
    if (std::ssize(decoding_) + std::ssize(prompts_) >= worker_.max_sequences) return false;
    std::vector<DecodeGroup> all = decoding_;
    const auto add = [&all](const WaitingGroup& group) {
      all.push_back({.context_tokens = 1.0 * group.cached_tokens + group.new_tokens,
                     .remaining_tokens = group.output_tokens});
    };
    for (const Prompt& prompt : prompts_) add(prompt.group);
    add(next);
    for (int moment = 0; moment <= 200; ++moment) {
      double held = 0;
      for (const DecodeGroup& one : all) {
        if (one.remaining_tokens >= moment) held += one.context_tokens + moment;
      }
      if (held > capacity_) return false;
    }
    return true;
  }

  const WorkerState& worker_;
  std::vector<DecodeGroup> decoding_;
  std::deque<Prompt> prompts_;
  std::deque<WaitingGroup> waiting_;
  double capacity_ = 0;
  bool served_ = false;
};

}  // namespace tandem
