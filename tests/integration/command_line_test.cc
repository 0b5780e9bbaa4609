// The commands of the binary as people and scripts use them: what they print, and their exit status.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command_line_fixture.h"
#include "tests/support/tree.h"

namespace tandem::command_line_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CommandLineTest, GenerateJsonIsOneObject) {
  const CommandResult result = Shell(
      "generate 'It was a fine morning' --route disaggregated --max-tokens 8 --temperature 0.7 "
      "--seed 5 --n 2 --ignore-eos --json" +
      Server());
  ASSERT_EQ(result.exit_status, 0);
  const auto json = ParseJson(result.output);
  EXPECT_EQ(json["token_ids"].size(), 8u);
  EXPECT_EQ(json["route"], "disaggregated");
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["seed"], 5);
  EXPECT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["usage"]["completion_tokens"], 16);
  EXPECT_GT(json["kv_bytes"]["wire"], 0);
}

TEST_F(CommandLineTest, GeneratePrintsTheTextAndErrorsAreOneLine) {
  const CommandResult text =
      Shell("generate 'It was a fine' --max-tokens 4 --temperature 0" + Server());
  EXPECT_EQ(text.exit_status, 0);
  EXPECT_GT(text.output.size(), 1u);
  const CommandResult negative =
      Shell("generate hi --temperature -1" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(negative.exit_status, 1);
  EXPECT_THAT(negative.output, StartsWith("error: INVALID_ARGUMENT: temperature=-1"));
  EXPECT_EQ(std::count(negative.output.begin(), negative.output.end(), '\n'), 1);
  const CommandResult bytes =
      Shell("generate \"$(printf 'a\\377')\"" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(bytes.exit_status, 1);
  EXPECT_THAT(bytes.output, HasSubstr("is not UTF-8"));
  const CommandResult usage = Shell("generate hi --route sideways 2>&1");
  EXPECT_EQ(usage.exit_status, 2);
  EXPECT_EQ(Shell("generate hi --seed -3 2>/dev/null").exit_status, 2);
}

TEST_F(CommandLineTest, TokenizeAgreesWithTheServer) {
  const CommandResult local = Shell("tokenize 'My dear Jane' --model " + SampleModel());
  const CommandResult remote = Shell("tokenize 'My dear Jane'" + Server());
  EXPECT_EQ(local.exit_status, 0);
  EXPECT_EQ(local.output, remote.output);
  const CommandResult generated =
      Shell("generate --token-ids " + local.output.substr(0, local.output.size() - 1) +
            " --max-tokens 3 --json" + Server());
  EXPECT_EQ(generated.exit_status, 0);
}

TEST_F(CommandLineTest, ChatTemplatePrintsThePromptAndItsTokens) {
  const std::string messages =
      R"(echo '[{"role": "user", "content": "My dear <|begin_of_text|>Jane"}]' | )";
  const auto run = [&](const std::string& flags) {
    return Shell("chat-template --model " + SampleModel() + " " + flags, messages);
  };
  EXPECT_EQ(run("").output, "<|begin_of_text|>My dear <|begin_of_text|>Jane\n");
  EXPECT_EQ(run("--parts").output,
            "template \"<|begin_of_text|>\"\ninput    \"My dear <|begin_of_text|>Jane\"\n");
  const CommandResult ids = run("--token-ids");
  EXPECT_EQ(ids.exit_status, 0);
  // The user's text has no control token, so it is longer than it would be with one.
  const CommandResult plain =
      Shell("tokenize 'My dear <|begin_of_text|>Jane' --model " + SampleModel());
  EXPECT_GT(std::count(ids.output.begin(), ids.output.end(), ','),
            std::count(plain.output.begin(), plain.output.end(), ','));
}

TEST_F(CommandLineTest, FlagsMayStandInAFile) {
  const std::string path = testing::TempDir() + "tandem_flags_" + std::to_string(getpid());
  std::ofstream(path) << "[generate]\nserver = \"" << cluster_->address()
                      << "\"\nmax-tokens = 3\nignore-eos = true\njson = true\n";
  for (const std::string& arguments :
       {"generate hi --config " + path, "--config " + path + " generate hi"}) {
    const CommandResult result = Shell(arguments);
    ASSERT_EQ(result.exit_status, 0) << arguments;
    EXPECT_EQ(ParseJson(result.output)["token_ids"].size(), 3u);
  }
  std::remove(path.c_str());
  EXPECT_EQ(Shell("generate hi --config /nowhere 2>/dev/null").exit_status, 2);
}

TEST_F(CommandLineTest, StatusKnowsWhetherItCanServe) {
  const CommandResult json = Shell("status --json" + Server());
  EXPECT_EQ(json.exit_status, 0);
  EXPECT_EQ(ParseJson(json.output)["workers"].size(), 3u);
  EXPECT_EQ(Shell("status" + Server()).exit_status, 0);
  EXPECT_EQ(Shell("status --server 127.0.0.1:1 2>/dev/null").exit_status, 1);
}

TEST_F(CommandLineTest, ARequestIsExplainedAfterItsEnd) {
  ASSERT_EQ(Shell("generate 'It was a fine morning' --request-id explained --max-tokens 8 "
                  "--ignore-eos --route disaggregated" +
                  Server())
                .exit_status,
            0);
  const CommandResult text = Shell("explain explained" + Server());
  EXPECT_EQ(text.exit_status, 0);
  EXPECT_THAT(text.output,
              AllOf(StartsWith("request explained of "), HasSubstr("  * prefill-0 -> decode-0"),
                    HasSubstr("ended: OK on prefill-0 -> decode-0, 8 output tokens"),
                    HasSubstr("to the first token: "), Not(HasSubstr("\x1b"))));
  const CommandResult json = Shell("explain explained --json" + Server());
  ASSERT_EQ(json.exit_status, 0);
  const auto explained = ParseJson(json.output)["requests"][0];
  EXPECT_EQ(explained["outcome"]["finish"]["completion_tokens"], 8);
  EXPECT_EQ(explained["decisions"][0]["cause"], "arrival");
  EXPECT_GT(explained["outcome"]["finish"]["stages"]["ttft_ms"], 0);
  const CommandResult list = Shell("explain --last 2 --router " + cluster_->address());
  EXPECT_EQ(list.exit_status, 0);
  EXPECT_THAT(list.output, HasSubstr("\nexplained "));
  const CommandResult unknown = Shell("explain nobody" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_THAT(unknown.output, StartsWith("error: NOT_FOUND: request_id=nobody"));
  const CommandResult both = Shell("explain explained --last 2" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(both.exit_status, 1);
  EXPECT_THAT(both.output, HasSubstr("either the id of a request or --last N"));
  const CommandResult none = Shell("explain --last 0" + Server() + "2>&1 >/dev/null");
  EXPECT_THAT(none.output, HasSubstr("latest=0 must be in [1, 256]"));
}

TEST_F(CommandLineTest, ChoicesAndBeamsHaveFlags) {
  const CommandResult best = Shell(
      "generate 'It was a fine' --max-tokens 6 --n 2 --best-of 4 --seed 3 --tenant alice "
      "--cache-salt s1 --session c1 --json" +
      Server());
  ASSERT_EQ(best.exit_status, 0);
  const auto ranked = ParseJson(best.output);
  ASSERT_EQ(ranked["choices"].size(), 2u);
  EXPECT_GE(ranked["choices"][0]["cumulative_logprob"], ranked["choices"][1]["cumulative_logprob"]);
  EXPECT_EQ(ranked["usage"]["completion_tokens"], 24);
  const CommandResult search = Shell(
      "generate 'It was a fine' --max-tokens 6 --n 3 --beam-width 4 --length-penalty 0.5 "
      "--early-stopping first --json" +
      Server());
  ASSERT_EQ(search.exit_status, 0);
  const auto beams = ParseJson(search.output);
  ASSERT_EQ(beams["choices"].size(), 3u);
  EXPECT_GE(beams["choices"][0]["score"], beams["choices"][2]["score"]);
  EXPECT_TRUE(beams["usage"].contains("cached_tokens"));
  EXPECT_TRUE(beams["usage"].contains("preemptions"));
  const CommandResult bad = Shell("generate hi --beam-width 1" + Server() + "2>&1 >/dev/null");
  EXPECT_EQ(bad.exit_status, 1);
  EXPECT_THAT(bad.output, StartsWith("error: INVALID_ARGUMENT: beam_width=1 must be in [2, 16]"));
  EXPECT_EQ(Shell("generate hi --length-penalty 1 2>/dev/null").exit_status, 2);
  EXPECT_EQ(Shell("generate hi --beam-width 4 --early-stopping soon 2>/dev/null").exit_status, 2);
}

// The word of that number on the line of `worker` in what `status --blocks` prints.
int BlockColumn(const std::string& table, const std::string& worker, int column) {
  std::istringstream line(table.substr(table.rfind("\n" + worker) + 1));
  std::string word;
  for (int i = 0; i <= column; ++i) line >> word;
  return std::stoi(word);
}

TEST_F(CommandLineTest, StatusSaysWhereTheBlocksAre) {
  constexpr int kPool = 1, kFree = 2, kCached = 3, kIdle = 4, kShared = 5;
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_UNIFIED, 1500);
  for (int32_t id = 0; id < 200; ++id) request.mutable_token_ids()->add_ids(300 + id);
  request.set_n(4);
  // The report is late by up to a heartbeat.
  const auto wait_for = [](const std::function<bool(const v1::KvUse&)>& holds) {
    cluster_->WaitFor("such blocks", [&holds](const v1::GetStatusResponse& status) {
      const v1::WorkerStatus* worker = FindWorker(status, "unified-0");
      return worker != nullptr && holds(worker->load().kv());
    });
  };
  std::string running;
  cluster_->client()
      .Generate(request, Client::kNoTimeout,
                [&](const v1::GenerateResponse&) {
                  wait_for([](const v1::KvUse& kv) { return kv.shared_blocks() > 0; });
                  running = Shell("status --blocks" + Server()).output;
                  return false;
                })
      .IgnoreError();
  EXPECT_GE(BlockColumn(running, "unified-0", kShared), 200 / 16) << running;
  cluster_->WaitUntilIdle();
  const std::string rest = Shell("status --blocks" + Server()).output;
  EXPECT_EQ(BlockColumn(rest, "unified-0", kShared), 0) << rest;
  EXPECT_GE(BlockColumn(rest, "unified-0", kCached), 200 / 16) << rest;
  EXPECT_EQ(BlockColumn(rest, "unified-0", kCached), BlockColumn(rest, "unified-0", kIdle)) << rest;
  EXPECT_EQ(BlockColumn(rest, "unified-0", kFree) + BlockColumn(rest, "unified-0", kIdle),
            BlockColumn(rest, "unified-0", kPool))
      << rest;
  const auto json = ParseJson(Shell("status --json" + Server()).output);
  for (const auto& worker : json["workers"]) EXPECT_TRUE(worker["kv"].contains("idle_blocks"));
}

}  // namespace
}  // namespace tandem::command_line_test
