#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_transport.h"
#include "tests/support/test_engine.h"

namespace tandem::prefill_handoff {

using absl::StatusCode;

// Tokens that the test model knows, and the reservation that the peer has for request 1.
inline constexpr int32_t kVocabSize = 288;
inline constexpr uint64_t kStream = 5;

// A prefill engine whose peer is played by the test, through the transport `wire_`.
class PrefillHandoffTest : public testing::Test {
 protected:
  void Start(TestEngineSetup setup = {}) {
    setup.role = Role::kPrefill;
    engine_ = std::make_unique<TestEngine>(setup);
    auto transport = std::make_unique<ScriptedTransport>();
    wire_ = transport.get();
    engine_->Connect(std::move(transport));
  }

  void Prefill(EngineRequest request) {
    (*engine_)->SubmitPrefill(
        std::move(request),
        {.data_address = "decode-1:7000", .reservation = ReservationId(kStream), .epoch = 3},
        recording_.NewSink());
  }
  void Prefill(int32_t prompt_tokens) {
    Prefill(Greedy(1, RandomPrompt(1, prompt_tokens, kVocabSize), 10));
  }

  void ExpectEnd(StatusCode code) {
    EXPECT_EQ(recording_.AwaitFinish().status.code(), code) << recording_.AwaitFinish().status;
    EXPECT_EQ(recording_.num_finishes(), 1);
    EXPECT_TRUE(engine_->AtRest());
  }
  // The engine still serves.
  void ExpectAlive() {
    Recording next;
    EngineRequest request = Greedy(99, {1, 2, 3}, 1);
    (*engine_)->SubmitPrefill(request, {.reservation = ReservationId(99)}, next.NewSink());
    EXPECT_TRUE(next.AwaitFinish().status.ok()) << next.AwaitFinish().status;
  }

  FakeClock clock_;
  Recording recording_;
  std::unique_ptr<TestEngine> engine_;
  ScriptedTransport* wire_ = nullptr;
};

}  // namespace tandem::prefill_handoff
