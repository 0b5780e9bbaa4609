// The options of `tandem generate` that constrain what is sampled or speak of the prompt, over real
// processes: they do what they say on every route.

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"

namespace tandem::request_options_test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using TokenIds = std::vector<int32_t>;

constexpr const char* kRoutes[] = {"unified", "disaggregated"};

class RequestOptionsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new TestCluster(); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void TearDown() override { cluster_->WaitUntilIdle(); }

  // What `tandem generate` prints for these flags, greedily, on this route.
  Json Generate(const std::string& route, const std::string& flags) const {
    const CommandResult result =
        Shell(fmt::format("generate 'It was a fine morning' --temperature 0 --route {} {} --json "
                          "--server {} 2>&1",
                          route, flags, cluster_->address()));
    EXPECT_EQ(result.exit_status, 0) << result.output;
    return ParseJson(result.output);
  }
  // The same on both routes, which must agree.
  Json Generate(const std::string& flags) const {
    const Json unified = Generate(kRoutes[0], flags);
    const Json disaggregated = Generate(kRoutes[1], flags);
    for (const char* field : {"text", "token_ids", "finish_reason", "stop", "prompt_logprobs"}) {
      EXPECT_EQ(unified.value(field, Json()), disaggregated.value(field, Json())) << flags;
    }
    return unified;
  }
  static TokenIds IdsOf(const Json& answer) { return answer["token_ids"].get<TokenIds>(); }

  static TestCluster* cluster_;
};
TestCluster* RequestOptionsTest::cluster_ = nullptr;

TEST_F(RequestOptionsTest, BiasesAndAllowedTokensDecideWhatIsSampled) {
  const TokenIds plain = IdsOf(Generate("--max-tokens 8 --ignore-eos"));
  ASSERT_EQ(plain.size(), 8u);
  const Json banned = Generate(
      fmt::format("--max-tokens 8 --ignore-eos --logit-bias {}=-100,{}=-100", plain[0], plain[3]));
  EXPECT_THAT(IdsOf(banned), Not(Contains(plain[0])));
  EXPECT_THAT(IdsOf(Generate("--max-tokens 8 --ignore-eos --logit-bias 5=100")), Each(5));
  for (const int32_t id : IdsOf(Generate("--max-tokens 8 --allowed-token-ids 40,41,42"))) {
    EXPECT_TRUE(id >= 40 && id <= 42) << id;
  }
}

TEST_F(RequestOptionsTest, MinTokensKeepsStopsFromEndingTheChoice) {
  const TokenIds plain = IdsOf(Generate("--max-tokens 20 --ignore-eos"));
  const std::string stop =
      fmt::format("--max-tokens 20 --ignore-eos --stop-token-ids {} ", plain[2]);
  EXPECT_LE(IdsOf(Generate(stop)).size(), 3u);
  const TokenIds longer = IdsOf(Generate(stop + "--min-tokens 12"));
  EXPECT_GE(longer.size(), 12u);
  EXPECT_EQ(std::count(longer.begin(), longer.begin() + 12, plain[2]), 0);
  const std::string stop_at_e = "--max-tokens 20 --ignore-eos --stop e ";
  EXPECT_LT(IdsOf(Generate(stop_at_e)).size(), 12u);
  EXPECT_GT(IdsOf(Generate(stop_at_e + "--min-tokens 12")).size(), 12u);
}

TEST_F(RequestOptionsTest, TheTextEndsWithTheStopStringWhereItIsIncluded) {
  const Json without = Generate("--max-tokens 40 --ignore-eos --stop e");
  const Json with = Generate("--max-tokens 40 --ignore-eos --stop e --include-stop");
  EXPECT_EQ(without["stop"], "e");
  EXPECT_THAT(with["text"].get<std::string>(), EndsWith("e"));
  EXPECT_EQ(with["text"], without["text"].get<std::string>() + "e");
  EXPECT_EQ(with["token_ids"], without["token_ids"]);
}

TEST_F(RequestOptionsTest, NoAnswerHasABadWord) {
  const std::string text = Generate("--max-tokens 30 --ignore-eos")["text"];
  const size_t begin = text.find_first_not_of(" ,.");
  const std::string word = text.substr(begin, text.find_first_of(" ,.;", begin) - begin);
  ASSERT_FALSE(word.empty());
  const Json without = Generate(fmt::format("--max-tokens 30 --ignore-eos --bad-word '{}'", word));
  EXPECT_THAT(" " + without["text"].get<std::string>() + " ", Not(HasSubstr(" " + word + " ")));
}

TEST_F(RequestOptionsTest, PromptLogprobsAreOfEveryTokenButTheFirst) {
  const Json answer = Generate("--max-tokens 4 --prompt-logprobs 2");
  const Json& scores = answer["prompt_logprobs"];
  EXPECT_EQ(scores.size() + 1, answer["usage"]["prompt_tokens"].get<size_t>());
  for (const Json& token : scores) {
    EXPECT_LT(token["logprob"], 0);
    ASSERT_EQ(token["top"].size(), 2u);
    EXPECT_GE(token["top"][0]["logprob"], token["top"][1]["logprob"]);
  }
  const Json alone = Generate("--max-tokens 0 --prompt-logprobs 2");
  EXPECT_EQ(alone["prompt_logprobs"], scores);
  EXPECT_TRUE(alone["token_ids"].empty());
  EXPECT_EQ(alone["finish_reason"], "length");
  EXPECT_EQ(alone["usage"]["completion_tokens"], 0);
}

TEST_F(RequestOptionsTest, OnlyTheEndOfATruncatedPromptIsUsed) {
  const Json whole = Generate("--max-tokens 4");
  const Json end = Generate("--max-tokens 4 --truncate-prompt 2");
  EXPECT_GT(whole["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(end["usage"]["prompt_tokens"], 2);
}

TEST_F(RequestOptionsTest, SpecialTokensArePartOfTheTextWhereTheyAreKept) {
  const std::string only_special = "--max-tokens 2 --ignore-eos --allowed-token-ids 2047 ";
  EXPECT_EQ(Generate(only_special)["text"], "");
  EXPECT_EQ(Generate(only_special + "--keep-special-tokens")["text"], "<|eot_id|><|eot_id|>");
}

TEST_F(RequestOptionsTest, WhatDoesNotGoTogetherIsRefused) {
  const auto refused = [](const std::string& flags) {
    return Shell("generate hi --server " + cluster_->address() + " " + flags + " 2>&1").output;
  };
  EXPECT_THAT(refused("--beam-width 3 --logit-bias 5=1"),
              HasSubstr("INVALID_ARGUMENT: logit_bias of 1 tokens does not go with beam_search"));
  EXPECT_THAT(refused("--beam-width 3 --bad-word x"), HasSubstr("beam_search takes none"));
  EXPECT_THAT(refused("--max-tokens 0"), HasSubstr("max_tokens=0 must be at least 1"));
  EXPECT_THAT(refused("--logit-bias 5"), HasSubstr("--logit-bias \"5\": must be ID=BIAS"));
  EXPECT_THAT(refused("--logit-bias 5=1,5=2"), HasSubstr("names token 5 twice"));
  EXPECT_THAT(refused("--min-tokens 9 --max-tokens 8"), HasSubstr("min_tokens=9"));
}

}  // namespace
}  // namespace tandem::request_options_test
