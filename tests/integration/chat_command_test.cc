// `tandem chat` through a pipe, with a real router and real workers.

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/http_cluster_fixture.h"
#include "tests/support/read_file.h"
#include "tests/support/shell.h"
#include "tests/support/test_certificates.h"
#include "tests/support/tree.h"

namespace tandem::chat_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

class ChatCommandTest : public HttpClusterFixture<Json> {
 protected:
  static void SetUpTestSuite() {
    HttpClusterFixture::SetUpTestSuite();
    std::string directory = ::testing::TempDir() + "chatXXXXXX";
    directory_ = mkdtemp(directory.data());
  }
  static void TearDownTestSuite() {
    HttpClusterFixture::TearDownTestSuite();
    std::filesystem::remove_all(directory_);
  }

  // Types these lines, which the shell's printf writes.
  static CommandResult Chat(const std::string& lines, const std::string& flags = "") {
    return Shell(
        fmt::format("chat --url http://127.0.0.1:{} --temperature 0 --max-tokens 12 {} 2>&1", port_,
                    flags),
        fmt::format("printf '{}' |", lines));
  }
  // What the model answers to these messages over HTTP.
  static std::string AnswerTo(const Json& messages) {
    const Json body = {{"messages", messages}, {"temperature", 0}, {"max_tokens", 12}};
    return Post("/v1/chat/completions", body)["choices"][0]["message"]["content"];
  }

  static inline std::filesystem::path directory_;
};

TEST_F(ChatCommandTest, APipeGetsTheAnswersAlone) {
  Json messages = {{{"role", "user"}, {"content", "It was a fine morning"}}};
  const std::string first = AnswerTo(messages);
  messages.push_back({{"role", "assistant"}, {"content", first}});
  messages.push_back({{"role", "user"}, {"content", "and then"}});
  const CommandResult chat = Chat("It was a fine morning\\nand then\\n");
  EXPECT_EQ(chat.exit_status, 0);
  EXPECT_EQ(chat.output, first + "\n" + AnswerTo(messages) + "\n");
}

TEST_F(ChatCommandTest, TheRouteIsTakenAndExplainedOverTheSameAddress) {
  const CommandResult chat = Chat("Dear Jane\\n/explain\\n", "--route disaggregated -v");
  EXPECT_EQ(chat.exit_status, 0) << chat.output;
  EXPECT_THAT(chat.output, HasSubstr("[disaggregated on prefill-0 -> decode-0, first token after"));
  EXPECT_THAT(chat.output, HasSubstr("wanted route disaggregated"));
  EXPECT_THAT(chat.output, HasSubstr("to the first token"));
  EXPECT_THAT(Chat("/route unified\\nDear Jane\\n", "-v").output,
              HasSubstr("[unified on unified-0, "));
}

TEST_F(ChatCommandTest, TheNextQuestionOfAChatFindsItsPrefixCached) {
  std::string question = "It is a truth universally acknowledged";
  for (int i = 0; i < 5; ++i) question += ", that a single man in possession of a good fortune";
  const CommandResult chat = Chat(question + "\\nWhy?\\n", "--route unified -v");
  const size_t second = chat.output.rfind("[unified on");
  ASSERT_NE(second, std::string::npos) << chat.output;
  EXPECT_THAT(chat.output.substr(second), Not(HasSubstr(" 0 of ")));
}

TEST_F(ChatCommandTest, WhatFailsIsSaidOnStderrAndInTheExitStatus) {
  const CommandResult chat = Chat("//a\\n/nonsense\\n");
  EXPECT_EQ(chat.exit_status, 1);
  EXPECT_THAT(chat.output, HasSubstr("error: INVALID_ARGUMENT: there is no command /nonsense"));
  const CommandResult refused = Chat("a\\n", "--top-p 3");
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.output, HasSubstr("error: INVALID_ARGUMENT: HTTP 400: top_p"));
  const CommandResult other = Chat("a\\n", "--model other");
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.output, StartsWith("error: NOT_FOUND"));
}

TEST_F(ChatCommandTest, AChatGoesOnInAnotherProcess) {
  const std::string file = directory_ / "chat.json";
  EXPECT_EQ(Chat("It was\\n/save " + file + "\\n").exit_status, 0);
  struct stat info {};
  ASSERT_EQ(stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  Json messages = ParseJson(ReadFile(file));
  ASSERT_EQ(messages.size(), 2u);
  messages.push_back({{"role", "user"}, {"content", "and then"}});
  EXPECT_EQ(Chat("and then\\n", "--load " + file).output, AnswerTo(messages) + "\n");
}

TEST_F(ChatCommandTest, AServerThatComesBackIsUsedAgain) {
  const std::string pipe = directory_ / "questions";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  FILE* output = popen(fmt::format("{} chat --url http://127.0.0.1:{} --max-tokens 4 -v <{} 2>&1",
                                   DaemonBinary(), port_, pipe)
                           .c_str(),
                       "r");
  std::ofstream questions(pipe);
  // The next line that has this text.
  const auto read_to = [output](const std::string& text) {
    char line[1000];
    while (std::fgets(line, sizeof(line), output) != nullptr) {
      if (std::string(line).find(text) != std::string::npos) return true;
    }
    return false;
  };
  questions << "one\n" << std::flush;
  EXPECT_TRUE(read_to("first token after"));
  cluster_->Kill("router");
  questions << "two\n" << std::flush;
  EXPECT_TRUE(read_to("no server answers"));
  cluster_->Start("router");
  cluster_->WaitFor("a route", [](const v1::GetStatusResponse& status) { return status.ready(); });
  questions << "/retry\n/stats\n/quit\n" << std::flush;
  EXPECT_TRUE(read_to("first token after"));
  EXPECT_TRUE(read_to("2 answers, 0 stopped, 1 failed"));
  EXPECT_EQ(WEXITSTATUS(pclose(output)), 1);
}

// tools/chat.sh looks for this line.
TEST_F(ChatCommandTest, WhatUpNamesWhenItIsReadyIsTheCommandToChatWith) {
  FILE* up = popen(fmt::format("{} up --model {} --prefill 0 --decode 0 --port 0 "
                               "--http-port 0 2>&1 & echo $!; wait",
                               DaemonBinary(), SampleModel())
                       .c_str(),
                   "r");
  char line[1000] = "";
  ASSERT_NE(std::fgets(line, sizeof(line), up), nullptr);
  const pid_t pid = std::atoi(line);
  std::string command;
  const std::string before = "chat: tandem ";
  while (command.empty() && std::fgets(line, sizeof(line), up) != nullptr) {
    const std::string text = line;
    const size_t found = text.find(before);
    if (found != std::string::npos) command = text.substr(found + before.size());
  }
  ASSERT_THAT(command, StartsWith("chat --url http://127.0.0.1:"));
  command.pop_back();  // the line feed
  const CommandResult chat = Shell(command + " --max-tokens 3 -v 2>&1", "echo It was |");
  EXPECT_EQ(chat.exit_status, 0) << chat.output;
  EXPECT_THAT(chat.output, HasSubstr("[unified on unified-0, "));
  kill(pid, SIGTERM);
  while (std::fgets(line, sizeof(line), up) != nullptr) {
  }
  pclose(up);
}

TEST_F(ChatCommandTest, ReasonsAreGivenOverHttpAsJsonToo) {
  HttpPeer http(port_);
  const Json body = {{"messages", {{{"role", "user"}, {"content", "a"}}}},
                     {"max_tokens", 2},
                     {"request_id", "mine"}};
  ASSERT_EQ(http.Post("/v1/chat/completions", body.dump()).status, 200);
  const HttpReply reply = http.Get("/explain/mine");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(ParseJson(reply.body)["requests"][0]["request_id"], "mine");
  EXPECT_EQ(http.Get("/explain/other").status, 404);
  EXPECT_EQ(http.Get("/explain/").status, 400);
  EXPECT_EQ(http.Get("/explain/%00").status, 400);
}

// The same with a router that speaks HTTPS.
class ChatOverTlsTest : public HttpClusterFixture<Json> {
 protected:
  static void SetUpTestSuite() {
    std::string directory = ::testing::TempDir() + "chat_tlsXXXXXX";
    directory_ = mkdtemp(directory.data());
    ours_ = new TestAuthority(directory_, "ours");
    const TlsFiles files =
        ours_->Issue("server", TestAuthority::Validity::kNow, "IP:127.0.0.1,DNS:router.example");
    Serve({.prefill = 0,
           .decode = 0,
           .router_flags = {"--http-tls-cert=" + files.cert, "--http-tls-key=" + files.key}});
  }
  static void TearDownTestSuite() {
    HttpClusterFixture::TearDownTestSuite();
    delete ours_;
    std::filesystem::remove_all(directory_);
  }

  static CommandResult Chat(const std::string& scheme, const std::string& flags) {
    return Shell(fmt::format("chat --url {}://127.0.0.1:{} --temperature 0 --max-tokens 4 {} 2>&1",
                             scheme, port_, flags),
                 "echo It was |");
  }

  static inline std::filesystem::path directory_;
  static inline const TestAuthority* ours_ = nullptr;
};

TEST_F(ChatOverTlsTest, ItTalksToAServerThatTheGivenAuthorityVouchesFor) {
  const CommandResult chat = Chat("https", "-v --tls-ca " + ours_->ca_file());
  EXPECT_EQ(chat.exit_status, 0) << chat.output;
  EXPECT_THAT(chat.output, HasSubstr("[unified on unified-0, first token after"));
}

TEST_F(ChatOverTlsTest, AServerThatNoAuthorityVouchesForIsSentNothing) {
  const TestAuthority foreign(directory_, "foreign");
  for (const std::string& flags : {"--tls-ca " + foreign.ca_file(), std::string()}) {
    const CommandResult chat = Chat("https", flags);
    EXPECT_EQ(chat.exit_status, 1);
    EXPECT_THAT(chat.output, StartsWith("error: FAILED_PRECONDITION: --tls-ca names who"));
    EXPECT_THAT(chat.output, HasSubstr("/v1/models: the server's certificate is refused"));
    EXPECT_THAT(chat.output, HasSubstr("unable to get local issuer certificate"))
        << "what is wrong with it, in the words of OpenSSL";
  }
  EXPECT_THAT(Chat("https", "--tls-ca " + foreign.ca_file()).output, HasSubstr(foreign.ca_file()));
  EXPECT_THAT(Chat("https", "--tls-ca /nowhere.pem").output, HasSubstr("/nowhere.pem"));
}

TEST_F(ChatOverTlsTest, HttpAndHttpsAreNotMixedUpSilently) {
  const CommandResult plain = Chat("http", "");
  EXPECT_EQ(plain.exit_status, 1);
  EXPECT_THAT(plain.output,
              HasSubstr("if the server speaks HTTPS, its address begins with https:"));
  const uint16_t http_port = FreePort();
  const TestCluster other(
      {.prefill = 0, .decode = 0, .router_flags = {fmt::format("--http-port={}", http_port)}});
  const CommandResult tls = Shell(
      fmt::format("chat --url https://127.0.0.1:{} --tls-ca {} 2>&1", http_port, ours_->ca_file()),
      "echo It was |");
  EXPECT_EQ(tls.exit_status, 1);
  EXPECT_THAT(tls.output,
              HasSubstr("if the server speaks plain HTTP, its address begins with http:"));
}

}  // namespace
}  // namespace tandem::chat_command_test
