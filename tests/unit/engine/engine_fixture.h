#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::unified_engine {

using absl::StatusCode;

inline constexpr int32_t kVocabSize = 288;  // llama2 of the goldens

// A unified engine, and what it says of each request that the test submits.
class EngineTest : public testing::Test {
 protected:
  // One engine per test, by its setup.
  TestEngine& Start(const TestEngineSetup& setup = {}) {
    engine_ = std::make_unique<TestEngine>(setup);
    return *engine_;
  }

  Recording& Submit(EngineRequest request) {
    Recording& recording = *recordings_.emplace_back(std::make_unique<Recording>());
    (*engine_)->Submit(std::move(request), recording.NewSink());
    return recording;
  }
  Recording& Submit(uint64_t id, int32_t prompt_tokens, int32_t max_tokens) {
    return Submit(Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), max_tokens));
  }

  void ExpectEnd(const Recording& recording, StatusCode code) {
    EXPECT_EQ(recording.AwaitFinish().status.code(), code) << recording.AwaitFinish().status;
    EXPECT_EQ(recording.num_finishes(), 1);
  }
  FakeClock clock_;
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::unique_ptr<TestEngine> engine_;
};

}  // namespace tandem::unified_engine
