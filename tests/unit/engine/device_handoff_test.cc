// A prefill and a decode engine on the device of the test (tests/support/test_device.h) and a wire
// between them: what is handed over from one device's memory into another's changes no answer.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem {
namespace {

using TokenIds = std::vector<int32_t>;

constexpr int32_t kVocabSize = 2048;

// No row depends on its batch: splits are fixed, and no step has more rows than our own matrix
// product takes (docs/cuda.md).
TestEngineSetup Blocks() {
  return {.checkpoint = "models/sample",
          .num_blocks = 64,
          .block_tokens = 16,
          .max_context_tokens = 512,
          .scheduler = {.max_step_tokens = 8, .max_sequences = 8},
          .splits = SplitMode::kFixed,
          .gated = false};
}

// Prompts around the edges of blocks and of steps.
std::vector<EngineRequest> Requests() {
  std::vector<EngineRequest> requests;
  for (int32_t prompt_tokens : {1, 15, 16, 17, 40, 64}) {
    const uint64_t id = requests.size() + 1;
    EngineRequest request = Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), 6);
    request.sampling = {.temperature = 0.8f, .seed = id};
    requests.push_back(std::move(request));
  }
  requests.back().n = 2;
  return requests;
}

std::vector<TokenIds> AllChoices(const Disaggregated& run) {
  std::vector<TokenIds> choices;
  for (int32_t i = 0; i < run.request.n; ++i) choices.push_back(run.token_ids(i));
  return choices;
}

std::vector<TokenIds> Unified(EngineRequest request) {
  TestEngine engine(Blocks());
  Recording recording;
  engine->Submit(request, recording.NewSink());
  EXPECT_EQ(recording.AwaitFinish().status, absl::OkStatus());
  std::vector<TokenIds> choices;
  for (int32_t i = 0; i < request.n; ++i) choices.push_back(recording.token_ids(i));
  return choices;
}

class DeviceHandoffTest : public testing::TestWithParam<Wire> {
 protected:
  void ExpectAtRest() {
    pair_.decode().Settle();
    EXPECT_TRUE(pair_.prefill().AtRest());
    EXPECT_TRUE(pair_.decode().AtRest());
  }

  HandoffPair pair_{Blocks(), GetParam()};
};

TEST_P(DeviceHandoffTest, ChangesNoAnswer) {
  const std::vector<EngineRequest> requests = Requests();
  std::vector<Disaggregated*> runs;
  for (const EngineRequest& request : requests) {
    const auto run = pair_.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    runs.push_back(*run);
  }
  for (Disaggregated* run : runs) pair_.Continue(*run);
  for (Disaggregated* run : runs) EXPECT_EQ(pair_.AwaitEnd(*run), absl::OkStatus());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(AllChoices(*runs[i]), Unified(requests[i])) << "request " << i;
  }
  ExpectAtRest();
}

TEST_P(DeviceHandoffTest, WhatIsCachedIsNotSentAgain) {
  EngineRequest request = Requests()[5];
  request.n = 1;
  std::vector<TokenIds> answers;
  std::vector<uint64_t> sent;
  for (uint64_t id : {1, 2}) {
    request.id = RequestId(id);
    const auto run = pair_.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair_.Continue(**run);
    ASSERT_EQ(pair_.AwaitEnd(**run), absl::OkStatus());
    answers.push_back((*run)->token_ids());
    sent.push_back((*run)->prefill.AwaitFinish().kv.raw_bytes);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_LT(sent[1], sent[0]);
  ExpectAtRest();
}

// Blocks of one hand-off are the next one's, again and again.
TEST_P(DeviceHandoffTest, BlocksChangeHandsAgainAndAgain) {
  EngineRequest request = Requests()[4];
  const std::vector<TokenIds> expected = Unified(request);
  for (uint64_t id = 1; id <= 5; ++id) {
    request.id = RequestId(id);
    request.cache_salt = std::to_string(id);  // no hit: all of it is sent
    const auto run = pair_.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair_.Continue(**run);
    ASSERT_EQ(pair_.AwaitEnd(**run), absl::OkStatus());
    EXPECT_EQ(AllChoices(**run), expected) << "time " << id;
  }
  ExpectAtRest();
}

TEST_P(DeviceHandoffTest, KvOfAnotherLayoutIsTakenWhereTheHostCanConvertIt) {
  KvLayout other = pair_.decode().layout();
  other.block_tokens = 32;
  const auto reservation = pair_.decode().ReserveFor(Requests()[0], other);
  if (TestDevice() == "cpu") {
    ASSERT_TRUE(reservation.ok()) << reservation.status();
    pair_.decode()->Release(reservation->id);
  } else {
    EXPECT_EQ(reservation.status().code(), absl::StatusCode::kFailedPrecondition);
    const std::string said(reservation.status().message());
    EXPECT_NE(said.find("32 tokens per block"), std::string::npos) << said;
    EXPECT_NE(said.find("blocks of 16"), std::string::npos) << said;
  }
  ExpectAtRest();
}

INSTANTIATE_TEST_SUITE_P(Wires, DeviceHandoffTest, testing::Values(Wire::kTcp, Wire::kLoopback),
                         [](const auto& info) {
                           return std::string(info.param == Wire::kTcp ? "tcp" : "loopback");
                         });

}  // namespace
}  // namespace tandem
