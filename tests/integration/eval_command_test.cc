// `tandem eval` against a real router and real workers.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"

namespace tandem::eval_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class EvalCommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string directory = ::testing::TempDir() + "evalXXXXXX";
    directory_ = mkdtemp(directory.data());
    std::ofstream book(File("book.txt"));
    for (int i = 0; i < 200; ++i) {
      book << "It is a truth universally acknowledged, that a single man in possession of " << i
           << " pounds must be in want of a wife.\n";
    }
    cluster_ = new TestCluster();
  }
  static void TearDownTestSuite() {
    delete cluster_;
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { cluster_->WaitUntilIdle(); }

  static std::string File(const std::string& name) { return directory_ / name; }
  static CommandResult Eval(const std::string& flags) {
    return Shell(fmt::format("eval --router {} {} 2>&1", cluster_->address(), flags));
  }
  static std::string Small(const std::string& flags = "") {
    return fmt::format("--input {} --prompt-tokens 200 --output-tokens 24 --prompts 3 {}",
                       File("book.txt"), flags);
  }

  static inline std::filesystem::path directory_;
  static inline TestCluster* cluster_ = nullptr;
};

TEST_F(EvalCommandTest, KvThatTravelsAsItIsChangesNoPrediction) {
  // The second run finds nothing of the first one cached.
  for (int run = 0; run < 2; ++run) {
    const CommandResult eval =
        Eval(Small(fmt::format("--json {} --html {}", File("eval.json"), File("eval.html"))));
    ASSERT_EQ(eval.exit_status, 0) << eval.output;
    EXPECT_THAT(eval.output, HasSubstr("sample: route disaggregated of " + cluster_->address()));
    EXPECT_THAT(eval.output, HasSubstr("top-1 agreement"));

    const Json json = ParseJson(ReadFile(File("eval.json")));
    ASSERT_EQ(json["windows"].size(), 3u);
    for (const Json& window : json["windows"]) {
      SCOPED_TRACE(window.dump());
      EXPECT_EQ(window["baseline_route"], "unified");
      EXPECT_EQ(window["route"], "disaggregated");
      EXPECT_EQ(window["top1_agreement"], 1);
      EXPECT_LT(window["kl_nats"], 1e-6);
      const double baseline = window["baseline_perplexity"];
      EXPECT_GT(baseline, 1.1);
      EXPECT_NEAR(window["perplexity"].get<double>() / baseline, 1, 1e-6);
      EXPECT_GT(window["kv_raw_bytes"], 0);
      EXPECT_GT(window["kv_raw_over_wire"], 0.9);
    }
    EXPECT_EQ(json["totals"]["top1_agreement"]["mean"], 1);

    const std::string page = ReadFile(File("eval.html"));
    EXPECT_THAT(page, HasSubstr("<svg"));
    EXPECT_THAT(page, Not(HasSubstr("<script")));
  }
}

TEST_F(EvalCommandTest, AWayThatLosesNothingFindsThePlantedFactsOfTheBaseline) {
  for (const char* question : {"known", "later"}) {
    SCOPED_TRACE(question);
    const CommandResult eval =
        Eval(fmt::format("--input {} --prompt-tokens 600 --prompts 3 --planted {} --json {}",
                         File("book.txt"), question, File("planted.json")));
    ASSERT_EQ(eval.exit_status, 0) << eval.output;
    EXPECT_THAT(eval.output, HasSubstr("planted fact found, tested"));
    const Json json = ParseJson(ReadFile(File("planted.json")));
    EXPECT_EQ(json["planted"], question);
    ASSERT_EQ(json["windows"].size(), 3u);
    for (const Json& window : json["windows"]) {
      SCOPED_TRACE(window.dump());
      EXPECT_EQ(window["route"], "disaggregated");
      ASSERT_TRUE(window["baseline_found"].is_number());
      EXPECT_EQ(window["found"], window["baseline_found"]);
      EXPECT_LT(window["kl_nats"], 1e-6);
      EXPECT_EQ(window["top1_agreement"], 1);
    }
  }
}

TEST_F(EvalCommandTest, TextsOfJsonLinesKeepTheirNames) {
  std::ofstream lines(File("set.jsonl"));
  for (const char* name : {"first", "second"}) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += fmt::format("{} {} of many words. ", name, i);
    lines << Json({{"name", name}, {"text", text}}).dump() << "\n";
  }
  lines.close();
  const CommandResult eval = Eval(
      fmt::format("--input {} --prompt-tokens 40 --output-tokens 8 --prompts 2 --route unified",
                  File("set.jsonl")));
  ASSERT_EQ(eval.exit_status, 0) << eval.output;
  EXPECT_THAT(eval.output, HasSubstr("first#1"));
  EXPECT_THAT(eval.output, HasSubstr("second#1"));
  EXPECT_THAT(eval.output, HasSubstr("moved no KV"));
}

// The log-probabilities are those of the text: a text that makes no sense is less probable.
TEST_F(EvalCommandTest, PerplexityTellsTextsApart) {
  std::ofstream noise(File("noise.txt"));
  for (int i = 0; i < 400; ++i) noise << (i * 7919 % 1000) << "qzx" << (i % 7) << "~";
  noise.close();
  const auto perplexity = [](const std::string& file) {
    const CommandResult eval =
        Eval(fmt::format("--input {} --prompt-tokens 100 --output-tokens 24 --prompts 1 --json {}",
                         File(file), File("one.json")));
    EXPECT_EQ(eval.exit_status, 0) << eval.output;
    return ParseJson(ReadFile(File("one.json")))["windows"][0]["perplexity"].get<double>();
  };
  EXPECT_GT(perplexity("noise.txt"), 2 * perplexity("book.txt"));
}

// Workers of one router have KV of one type, so this takes another router.
TEST_F(EvalCommandTest, KvOfLessPrecisionChangesPredictions) {
  TestCluster coarse({.unified = 0, .worker_flags = {"--kv-dtype=f8e4m3"}});
  const CommandResult eval =
      Shell(fmt::format("eval --router {} --baseline-router {} {} 2>&1", coarse.address(),
                        cluster_->address(), Small("--json " + File("coarse.json"))));
  ASSERT_EQ(eval.exit_status, 0) << eval.output;
  const Json json = ParseJson(ReadFile(File("coarse.json")));
  EXPECT_EQ(json["baseline"]["router"], cluster_->address());
  for (const Json& window : json["windows"]) {
    SCOPED_TRACE(window.dump());
    EXPECT_GT(window["kl_nats"], 1e-6);
    EXPECT_LT(window["kl_nats"], 0.1);
    EXPECT_NE(window["perplexity"], window["baseline_perplexity"]);
  }
}

TEST_F(EvalCommandTest, WrongInputIsSaidInOneLine) {
  const auto refused = [](const std::string& flags) {
    const CommandResult eval = Eval(flags);
    EXPECT_NE(eval.exit_status, 0) << flags;
    return eval.output;
  };
  EXPECT_THAT(refused("--input /absent.txt"), HasSubstr("/absent.txt cannot be read"));
  EXPECT_THAT(refused(""), HasSubstr("--input is required"));
  EXPECT_THAT(refused("--input " + File("book.txt") + " --prompt-tokens 2000 --output-tokens 49"),
              HasSubstr("exceed the context of 2048 tokens of sample"));
  EXPECT_THAT(refused(Small("--json /nowhere/eval.json")),
              HasSubstr("/nowhere/eval.json cannot be written"));
  EXPECT_THAT(refused(Small("--logprobs 21")), HasSubstr("--logprobs"));
  EXPECT_THAT(refused(Small("--route sideways")), HasSubstr("--route"));
  EXPECT_THAT(refused(Small("--planted known")), HasSubstr("--output-tokens excludes --planted"));
  const std::string planted = "--input " + File("book.txt") + " --prompt-tokens 64 --planted ";
  EXPECT_THAT(refused(planted + "sometimes"), HasSubstr("--planted"));
  EXPECT_THAT(refused(planted + "known"), HasSubstr("has no room at token"));
  std::ofstream(File("short.txt")) << "Too short.";
  EXPECT_THAT(refused("--input " + File("short.txt")), HasSubstr("none of 1 texts has the 1279"));
  std::ofstream(File("bad.jsonl")) << "{\"text\": \"good\"}\nbad\n";
  EXPECT_THAT(refused("--input " + File("bad.jsonl")), HasSubstr("bad.jsonl:2: it is no JSON"));
  EXPECT_THAT(Shell("eval --router 127.0.0.1:1 " + Small() + " 2>&1").output,
              HasSubstr("no router at 127.0.0.1:1"));
}

TEST_F(EvalCommandTest, ForcedTokensThatContradictTheRequestAreRefused) {
  v1::GenerateRequest request = TextRequest("It was a fine morning", v1::ROUTE_DISAGGREGATED, 4);
  for (const int32_t id : {5, 6, 7}) request.add_forced_token_ids(id);
  const Outcome outcome = Ask(cluster_->client(), request);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument) << outcome.status;
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("forced_token_ids"));
  request.set_max_tokens(3);
  const Outcome forced = Ask(cluster_->client(), request);
  ASSERT_TRUE(forced.status.ok()) << forced.status;
  EXPECT_EQ(forced.generation.choices[0].token_ids, (std::vector<int32_t>{5, 6, 7}));
}

}  // namespace
}  // namespace tandem::eval_command_test
