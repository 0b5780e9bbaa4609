// What a request lets be sampled is kept to, and the answer is the same on every route, in every
// batch, behind tokens that another worker emitted, and after a preemption (P2).

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::constrained_answer_test {
namespace {

using TokenIds = std::vector<int32_t>;

constexpr int32_t kVocabSize = 288;
constexpr int32_t kOutput = 40;
constexpr int32_t kMinTokens = 12;

TestEngineSetup SetupFor(int32_t num_blocks, int32_t chunk = 0, int num_threads = 1) {
  return {.num_threads = num_threads,
          .num_blocks = num_blocks,
          .scheduler = {.max_step_tokens = 64, .max_prefill_chunk = chunk, .max_sequences = 24}};
}

using Answers = std::vector<std::vector<TokenIds>>;  // [request][choice]

struct Outcome {
  Answers answers;
  int32_t preemptions = 0;
};

std::vector<TokenIds> ChoicesOf(const Recording& recording, const EngineRequest& request) {
  std::vector<TokenIds> choices;
  for (int32_t i = 0; i < request.n; ++i) choices.push_back(recording.token_ids(i));
  return choices;
}

// kCrowd: together, where more are admitted than there is room for.
enum class Company : uint8_t { kAlone, kTogether, kCrowd };

Outcome Serve(const TestEngineSetup& setup, const std::vector<EngineRequest>& requests,
              Company company) {
  TestEngine engine(setup);
  if (company == Company::kCrowd) ExpectShortOutputs(engine);
  std::vector<Recording> recordings(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine->Submit(requests[i], recordings[i].NewSink());
    if (company == Company::kAlone) recordings[i].AwaitFinish();
  }
  Outcome outcome;
  for (size_t i = 0; i < requests.size(); ++i) {
    const FinishInfo finish = recordings[i].AwaitFinish();
    EXPECT_TRUE(finish.status.ok()) << finish.status;
    outcome.preemptions += finish.preemptions;
    outcome.answers.push_back(ChoicesOf(recordings[i], requests[i]));
  }
  EXPECT_TRUE(engine.AtRest());
  return outcome;
}

// The pairs of tokens that follow each other in an answer.
std::vector<TokenIds> PairsOf(const TokenIds& answer) {
  std::vector<TokenIds> pairs;
  for (size_t i = 1; i < answer.size(); ++i) pairs.push_back({answer[i - 1], answer[i]});
  return pairs;
}

bool Contains(const TokenIds& text, const TokenIds& part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end()) != text.end();
}

// Requests with each option alone and with all of them, sampled and greedy, some with several
// choices. A third of the vocabulary are stop tokens of those with min_tokens.
class ConstrainedAnswerTest : public testing::Test {
 protected:
  enum Option : size_t { kBias, kMinimum, kAllowed, kBadWords, kAll, kNumOptions };

  ConstrainedAnswerTest() {
    std::vector<EngineRequest> unconstrained;
    for (size_t i = 0; i < 2 * kNumOptions; ++i) {
      EngineRequest request =
          Greedy(i + 1, RandomPrompt(i, static_cast<int32_t>(5 + 9 * i), kVocabSize), kOutput);
      if (i >= kNumOptions) {
        request.sampling = {.temperature = 0.8f,
                            .top_p = 0.9f,
                            .repetition_penalty = 1.2f,
                            .presence_penalty = 0.3f,
                            .seed = 70 + i,
                            .num_logprobs = 2};
        request.n = i % 2 == 0 ? 3 : 1;
      }
      unconstrained.push_back(std::move(request));
    }
    unconstrained_ = Serve(SetupFor(1200), unconstrained, Company::kAlone).answers;
    requests_ = unconstrained;
    for (size_t i = 0; i < requests_.size(); ++i) Constrain(i);
    expected_ = Serve(SetupFor(1200), requests_, Company::kAlone).answers;
  }

  static Option OptionOf(size_t i) { return static_cast<Option>(i % kNumOptions); }
  static bool Has(size_t i, Option option) { return OptionOf(i) == option || OptionOf(i) == kAll; }

  void Constrain(size_t i) {
    TokenConstraints& constraints = requests_[i].constraints;
    if (Has(i, kBias)) {
      for (int32_t id = 1; id < kVocabSize; id += 5) constraints.logit_bias.push_back({id, -100});
      for (int32_t id = 2; id < kVocabSize; id += 5) constraints.logit_bias.push_back({id, 2.5f});
    }
    if (Has(i, kMinimum)) {
      constraints.min_tokens = kMinTokens;
      for (int32_t id = 0; id < kVocabSize; id += 3) requests_[i].stop_token_ids.push_back(id);
    }
    if (Has(i, kAllowed)) {
      for (int32_t id = 0; id < kVocabSize; id += 2) constraints.allowed_token_ids.push_back(id);
    }
    if (Has(i, kBadWords)) {
      constraints.bad_words = PairsOf(unconstrained_[i][0]);
      constraints.bad_words.push_back({unconstrained_[i][0][0]});
    }
  }

  std::vector<EngineRequest> requests_;
  Answers unconstrained_;
  Answers expected_;
};

TEST_F(ConstrainedAnswerTest, AnswersKeepToTheConstraints) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_NE(expected_[i], unconstrained_[i]);
    for (const TokenIds& answer : expected_[i]) {
      if (Has(i, kMinimum)) {
        EXPECT_GT(answer.size(), static_cast<size_t>(kMinTokens));
        for (size_t k = 0; k < kMinTokens; ++k) EXPECT_NE(answer[k] % 3, 0);
      }
      for (const int32_t id : answer) {
        EXPECT_FALSE(Has(i, kBias) && id % 5 == 1) << id;
        EXPECT_FALSE(Has(i, kAllowed) && id % 2 == 1) << id;
      }
      for (const TokenIds& word : requests_[i].constraints.bad_words) {
        EXPECT_FALSE(Contains(answer, word));
      }
    }
  }
  // The first stop token that may be sampled ends the choice.
  EXPECT_LT(expected_[kMinimum][0].size(), static_cast<size_t>(kOutput));
}

TEST_F(ConstrainedAnswerTest, WhateverTheBatchTheChunksAndTheThreads) {
  for (const int num_threads : {1, 2}) {
    for (const int32_t chunk : {1, 17, 0}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", threads " << num_threads);
      EXPECT_EQ(Serve(SetupFor(1200, chunk, num_threads), requests_, Company::kTogether).answers,
                expected_);
    }
  }
}

TEST_F(ConstrainedAnswerTest, ThroughTwoWorkers) {
  HandoffPair pair(SetupFor(1200), Wire::kLoopback);
  std::vector<Disaggregated*> runs;
  for (const EngineRequest& request : requests_) {
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    runs.push_back(*run);
  }
  for (Disaggregated* run : runs) pair.Continue(*run);
  for (size_t i = 0; i < runs.size(); ++i) {
    const absl::Status status = pair.AwaitEnd(*runs[i]);
    ASSERT_TRUE(status.ok()) << status;
    for (int32_t choice = 0; choice < requests_[i].n; ++choice) {
      EXPECT_EQ(runs[i]->token_ids(choice), expected_[i][choice]) << i << ", " << choice;
    }
  }
}

TEST_F(ConstrainedAnswerTest, BehindTokensOfAnotherWorker) {
  TestEngine engine(SetupFor(1200));
  for (size_t i = 0; i < requests_.size(); ++i) {
    for (const size_t emitted : {size_t{1}, size_t{7}, size_t{kMinTokens}}) {
      SCOPED_TRACE(testing::Message() << "request " << i << " behind " << emitted);
      EngineRequest request = requests_[i];
      for (const TokenIds& answer : expected_[i]) {
        ASSERT_GT(answer.size(), emitted);
        request.so_far.push_back(
            {.token_ids = {answer.begin(), answer.begin() + static_cast<int64_t>(emitted)}});
      }
      Recording recording;
      engine->Submit(request, recording.NewSink());
      ASSERT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
      for (int32_t choice = 0; choice < request.n; ++choice) {
        TokenIds all = request.so_far[choice].token_ids;
        for (const int32_t id : recording.token_ids(choice)) all.push_back(id);
        EXPECT_EQ(all, expected_[i][choice]) << choice;
      }
    }
  }
}

TEST_F(ConstrainedAnswerTest, AfterPreemptions) {
  const Outcome crowded = Serve(SetupFor(40), requests_, Company::kCrowd);
  EXPECT_EQ(crowded.answers, expected_);
  EXPECT_GT(crowded.preemptions, 0);
}

TEST(TokenConstraintsOfARequestTest, AreCheckedByTheEngine) {
  TestEngine engine(SetupFor(64));
  EngineRequest request = Greedy(1, {1, 2, 3}, 4);
  request.constraints.min_tokens = 5;
  Recording longer;
  engine->Submit(request, longer.NewSink());
  EXPECT_EQ(longer.AwaitFinish().status.message(), "min_tokens=5 must be at most max_tokens=4");
  request.constraints = {.logit_bias = {{kVocabSize, 1}}};
  Recording outside;
  engine->Submit(request, outside.NewSink());
  EXPECT_EQ(outside.AwaitFinish().status.code(), absl::StatusCode::kInvalidArgument);
  request.constraints = {.min_tokens = 1};
  request.stop_token_ids = {kVocabSize};
  Recording stop_outside;
  engine->Submit(request, stop_outside.NewSink());
  EXPECT_EQ(stop_outside.AwaitFinish().status.message(),
            "stop_token_ids[0]=288 must be in [0, 288)");
}

// Which tokens bad words leave depends on the output: the request fails when none is left, and the
// others of its step go on.
TEST(TokenConstraintsOfARequestTest, ThatLeaveNoTokenFailItAlone) {
  TestEngine engine(SetupFor(64));
  const EngineRequest other = Greedy(2, RandomPrompt(2, 9, kVocabSize), 10);
  Recording undisturbed;
  engine->Submit(other, undisturbed.NewSink());
  ASSERT_TRUE(undisturbed.AwaitFinish().status.ok());

  engine.gate().Allow(0);
  EngineRequest request = Greedy(1, RandomPrompt(1, 9, kVocabSize), 10);
  request.constraints = {.allowed_token_ids = {4, 5},
                         .bad_words = {{4, 4}, {4, 5}, {5, 4}, {5, 5}}};
  Recording failed;
  Recording beside;
  engine->Submit(request, failed.NewSink());
  engine->Submit(other, beside.NewSink());
  engine.gate().Open();
  EXPECT_EQ(failed.AwaitFinish().status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(failed.token_ids().size(), 1u);
  ASSERT_TRUE(beside.AwaitFinish().status.ok()) << beside.AwaitFinish().status;
  EXPECT_EQ(beside.token_ids(), undisturbed.token_ids());
  EXPECT_TRUE(engine.AtRest());
}

}  // namespace
}  // namespace tandem::constrained_answer_test
