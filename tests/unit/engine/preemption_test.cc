// A pool that holds a third of what is asked for: everything ends well, with the same answers.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::preemption_test {
namespace {

constexpr int32_t kVocabSize = 288;
constexpr int32_t kBlockTokens = 8;
constexpr int64_t kHostBytes = 8 << 20;

constexpr uint64_t kShort = 12;

// Short outputs first, which make the engine expect more of them, then long ones that outgrow what
// was admitted; some with several choices or beams.
std::vector<EngineRequest> Mixed() {
  std::vector<EngineRequest> requests;
  for (uint64_t id = 1; id <= 24 + kShort; ++id) {
    const auto prompt_tokens = static_cast<int32_t>(10 + id * 7 % 60);
    EngineRequest request = Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), 90);
    request.sampling = {.temperature = 0.9f, .seed = id};
    if (id <= kShort) {
      for (int32_t token = 0; token < kVocabSize; token += 3)
        request.stop_token_ids.push_back(token);
      requests.push_back(std::move(request));
      continue;
    }
    if (id % 6 == 0) request.n = 3;
    if (id % 8 == 1) {
      request.beams = BeamParams{.width = 3};
      request.sampling = {};
      request.n = 2;
    }
    request.tenant = id % 2 == 0 ? "even" : "odd";
    requests.push_back(std::move(request));
  }
  return requests;
}

using Answers = std::vector<std::vector<std::vector<int32_t>>>;  // [request][choice]

struct Outcome {
  Answers answers;
  EngineStats stats;
  int32_t preemptions = 0;
};

Outcome Serve(const TestEngineSetup& setup, const std::vector<EngineRequest>& requests) {
  TestEngine engine(setup);
  std::vector<Recording> recordings(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine->Submit(requests[i], recordings[i].NewSink());
    if (i + 1 == kShort) {
      for (size_t done = 0; done < kShort; ++done) recordings[done].AwaitFinish();
    }
  }
  Outcome outcome;
  for (size_t i = 0; i < requests.size(); ++i) {
    const FinishInfo finish = recordings[i].AwaitFinish();
    EXPECT_TRUE(finish.status.ok()) << finish.status;
    outcome.preemptions += finish.preemptions;
    outcome.answers.emplace_back();
    for (int32_t choice = 0; choice < requests[i].n; ++choice) {
      outcome.answers.back().push_back(recordings[i].token_ids(choice));
    }
  }
  EXPECT_TRUE(engine.AtRest());
  outcome.stats = engine->stats();
  return outcome;
}

class PreemptionTest : public testing::TestWithParam<int64_t> {
 protected:
  TestEngineSetup Crowded(int32_t num_blocks) const {
    return {.num_blocks = num_blocks,
            .block_tokens = kBlockTokens,
            .scheduler = {.max_step_tokens = 64, .max_sequences = 24},
            .host_bytes = GetParam()};
  }
};

TEST_P(PreemptionTest, AThirdOfTheRoomGivesTheSameAnswers) {
  const std::vector<EngineRequest> requests = Mixed();
  const Outcome free = Serve(Crowded(1200), requests);
  EXPECT_EQ(free.preemptions, 0);
  const Outcome crowded = Serve(Crowded(64), requests);
  EXPECT_EQ(crowded.answers, free.answers);
  EXPECT_GT(crowded.preemptions, 0);
  const SchedulerStats& stats = crowded.stats.scheduler;
  EXPECT_EQ(stats.preempted_recompute + stats.preempted_swap,
            static_cast<uint64_t>(crowded.preemptions));
  if (GetParam() == 0) {
    EXPECT_EQ(stats.preempted_swap, 0u);
  }
}

TEST_P(PreemptionTest, OnADecodeWorkerToo) {
  std::vector<EngineRequest> requests = Mixed();
  const Outcome free = Serve(Crowded(1200), requests);
  HandoffPair pair(Crowded(64), Wire::kLoopback);
  std::vector<Disaggregated*> runs;
  size_t answered = 0;
  for (const EngineRequest& request : requests) {
    auto run = pair.StartIfThereIsRoom(request);
    while (!run.ok()) {  // no room: whoever is under way makes some
      ASSERT_EQ(run.status().code(), absl::StatusCode::kCancelled) << run.status();
      ASSERT_LT(answered, runs.size()) << "no room, though nothing runs";
      ASSERT_TRUE(pair.AwaitEnd(*runs[answered++]).ok());
      run = pair.StartIfThereIsRoom(request);
    }
    pair.Continue(**run);
    runs.push_back(*run);
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const absl::Status status = pair.AwaitEnd(*runs[i]);
    EXPECT_TRUE(status.ok()) << status;
    for (int32_t choice = 0; choice < requests[i].n; ++choice) {
      EXPECT_EQ(runs[i]->token_ids(choice), free.answers[i][choice]) << i << ", " << choice;
    }
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

INSTANTIATE_TEST_SUITE_P(HostTier, PreemptionTest, testing::Values(0, kHostBytes),
                         [](const testing::TestParamInfo<int64_t>& info) {
                           return info.param == 0 ? "Without" : "With";
                         });

}  // namespace
}  // namespace tandem::preemption_test
