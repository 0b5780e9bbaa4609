#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/scheduler.h"
#include "tests/unit/scheduler/fake_engine.h"

namespace tandem {

class SchedulerFixture : public ::testing::Test {
 public:
  static SchedulerOptions Options() {
    return {.max_step_tokens = 1024,
            .max_sequences = 64,
            .max_waiting = 1000,
            .total_blocks = 4096,
            .block_tokens = 16};
  }

 protected:
  static SequenceId Id(uint64_t value) { return SequenceId(value); }

  static SequenceSpec Spec(uint64_t id, int32_t prompt, int32_t total) {
    return {.id = Id(id), .prompt_tokens = prompt, .max_total_tokens = total};
  }

  static std::vector<uint64_t> Ids(const std::vector<PrefillChunk>& chunks) {
    std::vector<uint64_t> ids;
    for (const PrefillChunk& chunk : chunks) ids.push_back(chunk.id.value());
    return ids;
  }

  static std::vector<uint64_t> Ids(const std::vector<Preemption>& preempted) {
    std::vector<uint64_t> ids;
    for (const Preemption& one : preempted) ids.push_back(one.id.value());
    return ids;
  }

  template <typename Change>
  void Rebuild(Change change) {
    SchedulerOptions options = Options();
    change(options);
    engine_ = std::make_unique<FakeEngine>(options, latency_);
  }

  absl::Status Enqueue(uint64_t id, int32_t prompt, int32_t priority = 0) {
    SequenceSpec spec = Spec(id, prompt, prompt + 16);
    spec.priority = priority;
    return engine_->Enqueue(spec);
  }

  StepPlan Step() { return engine_->Step(); }
  Scheduler& scheduler() { return engine_->scheduler; }

  // Enqueues and prefills `count` sequences from `first` on.
  void MakeRunning(uint64_t first, int count) {
    for (int i = 0; i < count; ++i) ASSERT_EQ(Enqueue(first + i, 1), absl::OkStatus());
    while (scheduler().stats().waiting + scheduler().stats().prefilling > 0) Step();
  }

  // Teaches the latency model that a token of prefill takes `token` and the copy of a block
  // `block`.
  void Measure(Duration token, Duration block) {
    for (int i = 1; i <= 50; ++i) {
      latency_.ObserveStep({.prefill_tokens = i, .prefill_pairs = i}, i * token);
      latency_.ObserveCopy(i, i * block);
    }
  }

  StepLearner latency_;
  std::unique_ptr<FakeEngine> engine_ = std::make_unique<FakeEngine>(Options(), latency_);
};

}  // namespace tandem
