// Beam search through the engine against transformers in float32 (tests/golden/README.md), whatever
// the route and whatever else is in the batch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/handoff_pair.h"
#include "tests/support/read_file.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/support/tree.h"

namespace tandem::beam_golden_test {
namespace {

using Json = nlohmann::json;
using EarlyStopping = BeamParams::EarlyStopping;
using TokenIds = std::vector<int32_t>;

constexpr double kTolerance = 1e-3;

struct Hypothesis {
  TokenIds ids;
  double score = 0;
};

struct Case {
  EngineRequest request;
  std::vector<Hypothesis> expected;
};

EarlyStopping EarlyStoppingOf(const Json& value) {
  if (value.is_string()) return EarlyStopping::kNever;
  return value.get<bool>() ? EarlyStopping::kFirst : EarlyStopping::kHeuristic;
}

Case CaseFrom(const Json& json, uint64_t id) {
  Case result;
  result.request = Greedy(id, json["prompt_ids"].get<TokenIds>(), json["max_new_tokens"]);
  result.request.n = json["num_return_sequences"];
  result.request.stop_token_ids = json["stop_token_ids"].get<TokenIds>();
  result.request.beams = {.width = json["num_beams"],
                          .length_penalty = json["length_penalty"],
                          .early_stopping = EarlyStoppingOf(json["early_stopping"])};
  for (const Json& hypothesis : json["hypotheses"]) {
    result.expected.push_back({hypothesis["ids"].get<TokenIds>(), hypothesis["score"]});
  }
  return result;
}

class BeamGoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    const Json golden = ParseJson(ReadFile(TreePath("tests/golden/beams/sample.json")));
    ASSERT_TRUE(golden.is_object());
    setup_.checkpoint = golden["checkpoint"].get<std::string>();
    for (const Json& json : golden["cases"]) cases_.push_back(CaseFrom(json, cases_.size() + 1));
    ASSERT_GE(cases_.size(), 30u);
  }

  // `recording` is of where the search ended.
  static void ExpectFound(const Case& c, const Recording& recording) {
    SCOPED_TRACE("case " + std::to_string(c.request.id.value()));
    const FinishInfo finish = recording.AwaitFinish();
    ASSERT_TRUE(finish.status.ok()) << finish.status;
    const std::vector<ChoiceEnd> ends = recording.choice_ends();
    ASSERT_EQ(ends.size(), c.expected.size());
    const TokenIds& stops = c.request.stop_token_ids;
    for (size_t i = 0; i < ends.size(); ++i) {
      const Hypothesis& expected = c.expected[i];
      const auto index = static_cast<int32_t>(i);
      EXPECT_EQ(recording.token_ids(index), expected.ids) << "hypothesis " << i;
      EXPECT_EQ(ends[i].index, index);
      EXPECT_NEAR(ends[i].score, expected.score, kTolerance);
      const double length = static_cast<double>(expected.ids.size());
      EXPECT_NEAR(ends[i].cumulative_logprob / std::pow(length, c.request.beams->length_penalty),
                  ends[i].score, kTolerance);
      const bool stopped = std::binary_search(stops.begin(), stops.end(), expected.ids.back());
      EXPECT_EQ(ends[i].reason, stopped ? FinishReason::kStop : FinishReason::kLength);
    }
  }

  // All cases at once; how many preemptions there were.
  int32_t ExpectFoundTogether() {
    TestEngine engine(setup_);
    engine.gate().Allow(0);
    std::vector<Recording> recordings(cases_.size());
    for (size_t i = 0; i < cases_.size(); ++i) {
      engine->Submit(cases_[i].request, recordings[i].NewSink());
    }
    engine.gate().Open();
    int32_t preemptions = 0;
    for (size_t i = 0; i < cases_.size(); ++i) {
      ExpectFound(cases_[i], recordings[i]);
      preemptions += recordings[i].AwaitFinish().preemptions;
    }
    EXPECT_TRUE(engine.AtRest());
    return preemptions;
  }

  TestEngineSetup setup_ = {
      .num_threads = 2, .num_blocks = 2048, .block_tokens = 8, .kv_dtype = DType::kF32};
  std::vector<Case> cases_;
};

TEST_F(BeamGoldenTest, AloneInAUnifiedEngine) {
  TestEngine engine(setup_);
  for (const Case& c : cases_) {
    Recording recording;
    engine->Submit(c.request, recording.NewSink());
    ExpectFound(c, recording);
  }
  EXPECT_GT(engine->stats().kv.copied_blocks, 0u) << "no beam ever wrote where another read";
  EXPECT_TRUE(engine.AtRest());
}

TEST_F(BeamGoldenTest, TogetherInAUnifiedEngine) { ExpectFoundTogether(); }

TEST_F(BeamGoldenTest, TogetherInStepsOfFewTokens) {
  setup_.scheduler.max_step_tokens = 12;
  ExpectFoundTogether();
}

TEST_F(BeamGoldenTest, TogetherWhereOneOrTwoFit) {
  setup_.num_blocks = 96;
  EXPECT_GT(ExpectFoundTogether(), 0) << "preemptions";
}

TEST_F(BeamGoldenTest, TogetherWhereOneOrTwoFitAndTheOthersMaySwap) {
  setup_.num_blocks = 80;
  setup_.host_bytes = 64 << 20;
  EXPECT_GT(ExpectFoundTogether(), 0) << "preemptions";
}

class BeamGoldenRouteTest : public BeamGoldenTest, public testing::WithParamInterface<Wire> {};

TEST_P(BeamGoldenRouteTest, Disaggregated) {
  HandoffPair pair(setup_, GetParam());
  uint64_t prompt_tokens = 0;
  for (const Case& c : cases_) {
    const auto run = pair.Start(c.request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    ASSERT_TRUE(pair.AwaitEnd(**run).ok());
    EXPECT_TRUE((*run)->prefill.choice_ends().empty());
    ExpectFound(c, (*run)->decode);
    prompt_tokens += c.request.prompt.size();
  }
  pair.decode().Settle();
  EXPECT_LE(pair.prefill()->stats().prompt_tokens, prompt_tokens) << "one prefill a search";
  EXPECT_EQ(pair.decode()->stats().prompt_tokens, 0u) << "one prefill a search";
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

INSTANTIATE_TEST_SUITE_P(Wires, BeamGoldenRouteTest, testing::Values(Wire::kLoopback, Wire::kTcp));

}  // namespace
}  // namespace tandem::beam_golden_test
