#include "server/commands/generation.h"

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::generation_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::GenerateResponse Chunk(int32_t index, const std::string& text, int32_t id) {
  v1::GenerateResponse event;
  event.mutable_chunk()->set_index(index);
  event.mutable_chunk()->set_text(text);
  event.mutable_chunk()->add_token_ids(id);
  return event;
}

Generation TwoChoices() {
  Generation generation;
  generation.Add(Chunk(1, "B", 5));
  generation.Add(Chunk(0, "A", 3));
  generation.Add(Chunk(1, "C", 6));
  for (const int32_t index : {0, 1}) {
    v1::GenerateResponse finish;
    finish.mutable_finish()->set_index(index);
    finish.mutable_finish()->set_reason(v1::FINISH_REASON_LENGTH);
    finish.mutable_finish()->set_route(v1::ROUTE_DISAGGREGATED);
    finish.mutable_finish()->mutable_kv_bytes()->set_raw(100);
    finish.mutable_finish()->set_cumulative_logprob(-1.5 * index);
    finish.mutable_finish()->set_score(-0.5 * index);
    generation.Add(finish);
  }
  v1::GenerateResponse summary;
  summary.mutable_summary()->set_seed(uint64_t{1} << 63);
  summary.mutable_summary()->mutable_usage()->set_prompt_tokens(4);
  summary.mutable_summary()->mutable_usage()->set_completion_tokens(3);
  summary.mutable_summary()->mutable_usage()->set_cached_tokens(2);
  summary.mutable_summary()->mutable_usage()->set_preemptions(1);
  summary.mutable_summary()->mutable_usage()->set_resumes(2);
  summary.mutable_summary()->mutable_usage()->set_kv_hidden_bytes(30);
  generation.Add(summary);
  return generation;
}

TEST(GenerationTest, PutsInterleavedChoicesTogether) {
  const Generation generation = TwoChoices();
  ASSERT_EQ(generation.choices.size(), 2u);
  EXPECT_EQ(generation.choices[0].text, "A");
  EXPECT_EQ(generation.choices[1].text, "BC");
  EXPECT_EQ(generation.choices[1].token_ids, (std::vector<int32_t>{5, 6}));
}

TEST(GenerationTest, JsonHasWhatScriptsRead) {
  const auto json = ParseJson(ToJson(TwoChoices()));
  EXPECT_EQ(json["text"], "A");
  EXPECT_EQ(json["token_ids"], std::vector<int>{3});
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["route"], "disaggregated");
  EXPECT_EQ(json["kv_bytes"]["raw"], 100);
  EXPECT_EQ(json["usage"]["total_tokens"], 7);
  EXPECT_EQ(json["seed"], uint64_t{1} << 63);
  EXPECT_TRUE(json["stages"].contains("residual_ms"));
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][1]["text"], "BC");
  EXPECT_EQ(json["choices"][1]["cumulative_logprob"], -1.5);
  EXPECT_EQ(json["choices"][1]["score"], -0.5);
  EXPECT_FALSE(json.contains("score")) << "not a beam search's";
  EXPECT_EQ(json["usage"]["cached_tokens"], 2);
  EXPECT_EQ(json["usage"]["preemptions"], 1);
  EXPECT_EQ(json["usage"]["resumes"], 2);
  EXPECT_EQ(json["usage"]["kv_hidden_bytes"], 30);
}

TEST(GenerationTest, APredictionStandsBesideWhatCameTrue) {
  Generation generation = TwoChoices();
  v1::ChoiceFinish& finish = generation.choices[0].finish;
  EXPECT_THAT(StageTable(finish), Not(HasSubstr("predicted")));
  EXPECT_FALSE(ParseJson(ToJson(generation)).contains("predicted"));
  finish.set_e2e_ms(44);
  finish.mutable_predicted()->set_e2e_ms(42.5);
  finish.mutable_predicted()->set_output_tokens(9.5);
  EXPECT_THAT(StageTable(finish), HasSubstr("predicted for 9.5 output tokens, and actual:\n"));
  EXPECT_THAT(StageTable(finish), HasSubstr("    end to end      42.500 ms     44.000 ms\n"));
  const auto json = ParseJson(ToJson(generation));
  EXPECT_EQ(json["predicted"]["e2e_ms"], 42.5);
  EXPECT_EQ(json["predicted"]["output_tokens"], 9.5);
}

TEST(GenerationTest, StagesErrorIsTheDistanceFromTtft) {
  v1::Stages stages;
  stages.set_ttft_ms(10);
  stages.set_prefill_ms(7);
  stages.set_residual_ms(2.5);
  EXPECT_DOUBLE_EQ(StagesErrorMs(stages), 0.5);
}

TEST(GenerationTest, EveryStageIsPartOfTtft) {
  v1::Stages stages;
  stages.set_ttft_ms(255);
  stages.set_queue_ms(1);
  stages.set_prefill_ms(2);
  stages.set_reserve_ms(4);
  stages.set_admission_ms(8);
  stages.set_transfer_ms(16);
  stages.set_first_token_ms(32);
  stages.set_residual_ms(64);
  stages.set_earlier_attempts_ms(128);
  EXPECT_DOUBLE_EQ(StagesErrorMs(stages), 0);
}

}  // namespace
}  // namespace tandem::generation_test
