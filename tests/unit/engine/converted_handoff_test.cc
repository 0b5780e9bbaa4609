// Two engines that keep KV differently: with other block sizes the answer is the very same one as
// on one worker; where numbers are widened, the hand-off comes whole.

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"

namespace tandem::converted_handoff_test {
namespace {

constexpr int32_t kVocabSize = 288;

EngineRequest Request(uint64_t id, int32_t prompt_tokens) {
  return Greedy(id, RandomPrompt(7, prompt_tokens, kVocabSize), 12);
}

// ... of which the first answer and more is part.
EngineRequest SecondTurn(uint64_t id, int32_t prompt_tokens, const std::vector<int32_t>& answer) {
  std::vector<int32_t> prompt = RandomPrompt(7, prompt_tokens, kVocabSize);
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  const std::vector<int32_t> question = RandomPrompt(9, 5, kVocabSize);
  prompt.insert(prompt.end(), question.begin(), question.end());
  return Greedy(id, prompt, 12);
}

std::vector<int32_t> Unified(int32_t prompt_tokens) {
  TestEngine engine({});
  Recording whole;
  engine->Submit(Request(1, prompt_tokens), whole.NewSink());
  EXPECT_TRUE(whole.AwaitFinish().status.ok());
  return whole.token_ids();
}

struct Answer {
  absl::Status status;
  std::vector<int32_t> tokens;
  int32_t cached_tokens = 0;  // at the decode worker
};

Answer HandOver(HandoffPair& pair, const EngineRequest& request) {
  const auto run = pair.Start(request);
  if (!run.ok()) return {.status = run.status()};
  pair.Continue(**run);
  return {.status = pair.AwaitEnd(**run),
          .tokens = (*run)->token_ids(),
          .cached_tokens = (*run)->reservation.cached_tokens};
}

Answer HandOver(HandoffPair& pair, uint64_t id, int32_t prompt_tokens) {
  return HandOver(pair, Request(id, prompt_tokens));
}

using Sizes = std::tuple<int32_t, int32_t>;
class BlockSizePairTest : public testing::TestWithParam<Sizes> {};

// The second time, decode holds the whole blocks of its own size, and less than a block of the
// sender's may be missing in front.
TEST_P(BlockSizePairTest, TheAnswerIsThatOfOneWorker) {
  const auto [prefill_tokens, decode_tokens] = GetParam();
  const std::vector<int32_t> answer = Unified(77);
  HandoffPair pair({.block_tokens = prefill_tokens}, {.block_tokens = decode_tokens},
                   Wire::kLoopback);
  for (const uint64_t id : {1, 2}) {
    const Answer run = HandOver(pair, id, 77);
    EXPECT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.tokens, answer) << "time " << id;
    EXPECT_EQ(run.cached_tokens, id == 1 ? 0 : 77 / decode_tokens * decode_tokens);
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.decode().AtRest());
}

INSTANTIATE_TEST_SUITE_P(All, BlockSizePairTest,
                         testing::Values(Sizes{8, 16}, Sizes{8, 64}, Sizes{16, 8}, Sizes{16, 32},
                                         Sizes{64, 8}, Sizes{64, 16}, Sizes{256, 16}));

using Types = std::tuple<DType, DType>;
class TypePairTest : public testing::TestWithParam<Types> {};

TEST_P(TypePairTest, WiderNumbersTakeTheKv) {
  const auto [from, to] = GetParam();
  HandoffPair pair({.block_tokens = 16, .kv_dtype = from}, {.block_tokens = 8, .kv_dtype = to},
                   Wire::kLoopback);
  const Answer run = HandOver(pair, 1, 50);
  EXPECT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.tokens.size(), 12u);
}

// What the decode worker computed itself is not what would be sent for it: it is no part of a later
// prompt, while in one type it is.
TEST_P(TypePairTest, OnlyWhatWasSentIsCached) {
  const auto [from, to] = GetParam();
  for (const DType kept : {from, to}) {
    HandoffPair pair({.block_tokens = 8, .kv_dtype = from}, {.block_tokens = 8, .kv_dtype = kept},
                     Wire::kLoopback);
    const Answer first = HandOver(pair, 1, 50);
    ASSERT_TRUE(first.status.ok()) << first.status;
    const Answer second = HandOver(pair, SecondTurn(2, 50, first.tokens));
    ASSERT_TRUE(second.status.ok()) << second.status;
    EXPECT_EQ(second.cached_tokens, kept == from ? 56 : 48);
  }
}

constexpr uint64_t kShortAnswers = 12;

// Short answers first, from which the decode worker learns to expect more of them, then long ones,
// which outgrow the room that was set aside for them: any two at once exceed a pool of 352 tokens.
std::vector<EngineRequest> ShortThenLongAnswers() {
  std::vector<EngineRequest> requests;
  for (uint64_t id = 1; id <= kShortAnswers + 16; ++id) {
    const auto prompt_tokens = static_cast<int32_t>(10 + id * 7 % 60);
    EngineRequest request = Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), 180);
    request.sampling = {.temperature = 0.9f, .seed = id};
    if (id <= kShortAnswers) {
      for (int32_t token = 0; token < kVocabSize; token += 3) {
        request.stop_token_ids.push_back(token);
      }
    } else if (id % 8 == 1) {
      request.beams = BeamParams{.width = 3};
      request.sampling = {};
      request.max_tokens = 80;  // one alone must fit
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

using Tokens = std::vector<std::vector<int32_t>>;

void ContinueAll(HandoffPair& pair, std::vector<Disaggregated*>& runs, Tokens& answers) {
  for (Disaggregated* const run : runs) pair.Continue(*run);
  for (Disaggregated* const run : runs) {
    const absl::Status status = pair.AwaitEnd(*run);
    EXPECT_TRUE(status.ok()) << status;
    answers.push_back(run->token_ids());
  }
  runs.clear();
}

// The answers to `requests`. As many as the decode worker has room for are reserved before the
// first of them is decoded, so that it is not a matter of time whether they outgrow its pool.
Tokens AnswerAll(HandoffPair& pair, const std::vector<EngineRequest>& requests) {
  std::vector<Disaggregated*> runs;
  Tokens answers;
  for (const EngineRequest& request : requests) {
    auto run = pair.StartIfThereIsRoom(request);
    if (!run.ok() || request.id.value() == kShortAnswers + 1) {
      ContinueAll(pair, runs, answers);
      if (!run.ok()) run = pair.StartIfThereIsRoom(request);
    }
    EXPECT_TRUE(run.ok()) << "no room, though nothing runs: " << run.status();
    if (run.ok()) runs.push_back(*run);
  }
  ContinueAll(pair, runs, answers);
  return answers;
}

// A decode worker without room drops KV that was sent to it and computes the prompt again. It must
// round as the sender did, or the request would go on with other tokens (P2).
TEST_P(TypePairTest, APreemptedRequestGoesOnWithTheSameTokens) {
  const auto [from, to] = GetParam();
  const std::vector<EngineRequest> requests = ShortThenLongAnswers();
  const TestEngineSetup prefill = {.num_blocks = 1200, .block_tokens = 16, .kv_dtype = from};
  TestEngineSetup decode = {.num_blocks = 1200,
                            .block_tokens = 8,
                            .scheduler = {.max_step_tokens = 64, .max_sequences = 24},
                            .kv_dtype = to};
  HandoffPair roomy(prefill, decode, Wire::kLoopback);
  const Tokens undisturbed = AnswerAll(roomy, requests);
  EXPECT_EQ(roomy.decode()->stats().scheduler.preempted_recompute, 0u);
  decode.num_blocks = 44;
  HandoffPair crowded(prefill, decode, Wire::kLoopback);
  EXPECT_EQ(AnswerAll(crowded, requests), undisturbed);
  EXPECT_GT(crowded.decode()->stats().scheduler.preempted_recompute, 0u);
}

TEST_P(TypePairTest, NarrowerOnesDoNot) {
  const auto [to, from] = GetParam();
  HandoffPair pair({.kv_dtype = from}, {.kv_dtype = to}, Wire::kLoopback);
  const absl::Status status = HandOver(pair, 1, 50).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  for (const DType dtype : {from, to}) {
    EXPECT_NE(status.message().find("dtype=" + std::string(Name(dtype))), absl::string_view::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Exact, TypePairTest,
                         testing::Values(Types{DType::kF8E4M3, DType::kBF16},
                                         Types{DType::kF8E4M3, DType::kF16},
                                         Types{DType::kF8E4M3, DType::kF32},
                                         Types{DType::kBF16, DType::kF32},
                                         Types{DType::kF16, DType::kF32}));

}  // namespace
}  // namespace tandem::converted_handoff_test
