// Processes that take their flags from one file.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/commands/child_process.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"
#include "transfer/media/tcp/socket.h"

namespace tandem::config_file_integration_test {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

// A file of this process and test that is gone afterwards.
class WrittenFile {
 public:
  explicit WrittenFile(const std::string& text) : WrittenFile("config", text) {}
  WrittenFile(const std::string& stem, const std::string& text)
      : path_(fmt::format("{}tandem_{}_{}_{}", testing::TempDir(), stem, getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    Write(text);
  }
  ~WrittenFile() { std::remove(path_.c_str()); }
  void Write(const std::string& text) const { std::ofstream(path_) << text; }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

void Terminate(const ChildProcess& process) {
  process.Signal(SIGTERM);
  int how = 0;
  EXPECT_EQ(waitpid(process.pid(), &how, 0), process.pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

// The arguments of the child of `parent` that has `word` among them; empty where there is none.
std::vector<std::string> ArgumentsOfChild(pid_t parent, const std::string& word) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", parent));
  for (pid_t child = 0; children >> child;) {
    std::ifstream file(fmt::format("/proc/{}/cmdline", child));
    std::vector<std::string> arguments;
    for (std::string one; std::getline(file, one, '\0');) arguments.push_back(one);
    if (std::ranges::find(arguments, word) != arguments.end()) return arguments;
  }
  return {};
}

std::string FileWith(const std::string& router) {
  return fmt::format(R"(
[shared]
model = {}
log-level = off

[router]
port = 0
max-choices = 2

[worker]
router = {}
threads = 1
kv-tokens = 4096

[worker.name.second]
role = decode
max-waiting = 7
)",
                     SampleModel(), router);
}

TEST(ConfigFileIntegrationTest, ARouterAndWorkersOfOneFileAnswerARequest) {
  const WrittenFile file(FileWith("127.0.0.1:1"));
  auto router = ChildProcess::Start({"router", "--config", file.path()}, DaemonBinary());
  ASSERT_TRUE(router.ok()) << router.status();
  const std::string address = router->TakeReadyLine();
  ASSERT_FALSE(address.empty()) << router->failure();
  file.Write(FileWith(address));
  auto prefill =
      ChildProcess::Start({"worker", "--role=prefill", "--config", file.path()}, DaemonBinary());
  // The file says its role.
  auto decode =
      ChildProcess::Start({"worker", "--name=second", "--config", file.path()}, DaemonBinary());
  ASSERT_TRUE(prefill.ok() && decode.ok());
  ASSERT_FALSE(prefill->TakeReadyLine().empty()) << prefill->failure();
  ASSERT_FALSE(decode->TakeReadyLine().empty()) << decode->failure();
  const CommandResult answer = Shell(
      fmt::format("generate 'It was' --route disaggregated --max-tokens 4 --server {}", address));
  EXPECT_EQ(answer.exit_status, 0);
  EXPECT_FALSE(answer.output.empty());
  const CommandResult refused =
      Shell(fmt::format("generate 'It was' --n 3 --max-tokens 4 --server {} 2>&1", address));
  EXPECT_THAT(refused.output, HasSubstr("n=3 must be in [1, 2]"));
  for (const ChildProcess* process : {&*router, &*prefill, &*decode}) Terminate(*process);
}

TEST(ConfigFileIntegrationTest, UpGivesEachProcessItsSectionsAndTheCommandLineBeatsThem) {
  const WrittenFile file(fmt::format(R"(
[shared]
model = {}
log-level = off
[router]
port = 0
policy = round-robin
[worker]
kv-tokens = 4096
threads = 1
port = 9
max-waiting = 5
[worker.decode]
kv-tokens = 8192
[worker.name.decode-0]
max-sequences = 3
[up]
unified = 0
no-http = true
)",
                                     SampleModel()));
  auto up = ChildProcess::Start({"up", "--config", file.path(), "--max-waiting=7"}, DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  ASSERT_FALSE(up->TakeReadyLine().empty()) << up->failure();
  const auto router = ArgumentsOfChild(up->pid(), "router");
  const auto prefill = ArgumentsOfChild(up->pid(), "--name=prefill-0");
  const auto decode = ArgumentsOfChild(up->pid(), "--name=decode-0");
  EXPECT_THAT(router, Contains("--policy=round-robin"));
  EXPECT_THAT(router, Not(Contains(StartsWith("--max-waiting"))));
  EXPECT_THAT(prefill, IsSupersetOf({"--kv-tokens=4096", "--threads=1", "--max-waiting=7"}));
  EXPECT_THAT(decode, IsSupersetOf({"--kv-tokens=8192", "--max-sequences=3", "--max-waiting=7"}));
  EXPECT_THAT(prefill, Not(Contains(AnyOf(StartsWith("--port"), StartsWith("--policy")))));
  EXPECT_TRUE(ArgumentsOfChild(up->pid(), "--name=unified-0").empty());
  Terminate(*up);
}

// The text between the first "```toml" of a page and the next "```".
std::string ExampleOf(const std::string& path) {
  std::ifstream file(path);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::string fence = "```toml\n";
  const size_t begin = page.find(fence) + fence.size();
  return page.substr(begin, page.find("```", begin) - begin);
}

void ReplaceOnce(const std::string& what, const std::string& with, std::string& text) {
  ASSERT_NE(text.find(what), std::string::npos) << what;
  text.replace(text.find(what), what.size(), with);
}

TEST(ConfigFileIntegrationTest, TheExampleOfTheDocsIsInOrder) {
  const WrittenFile access("access", "{\"usual_tenant\": {\"max_in_flight\": 16}}");
  std::string text = ExampleOf(TreePath("docs/configuration.md"));
  ReplaceOnce("/srv/models/my-model", SampleModel(), text);
  ReplaceOnce("/etc/tandem/access.json", access.path(), text);
  const WrittenFile file(text);
  const CommandResult checked =
      Shell("check --skip-ports --json --kv-transport=tcp --config " + file.path());
  EXPECT_EQ(checked.exit_status, 0) << checked.output;
  const nlohmann::json report = ParseJson(checked.output);
  ASSERT_EQ(report["workers"].size(), 2u);
  const double prefill = report["workers"][0]["kv_pool_bytes"];
  const double decode = report["workers"][1]["kv_pool_bytes"];
  EXPECT_NEAR(decode / prefill, 2, 0.01);  // 1GiB and 2GiB in whole blocks
  EXPECT_EQ(report["links"][0]["transport"], "tcp");
}

TEST(ConfigFileIntegrationTest, CheckNamesWhatIsWrongInEachPartAndFails) {
  const WrittenFile file(fmt::format(R"(
[shared]
model = {}
[router]
lease-ms = 10
[worker.decode]
kv-lease-ms = 1
[worker.prefill]
max-context = 99999
[worker.name.elsewhere]
router = ["10.0.0.1:8080", "dns:routers:8080"]
advertise = 10.0.0.3
[worker.name.wrong]
router = 10.0.0.1
)",
                                     SampleModel()));
  const CommandResult checked = Shell("check --skip-ports --config " + file.path());
  EXPECT_EQ(checked.exit_status, 1);
  EXPECT_THAT(checked.output, HasSubstr("error: router: --lease-ms 10: "));
  EXPECT_THAT(checked.output, HasSubstr("error: decode-0: --kv-lease-ms: "));
  EXPECT_THAT(checked.output, HasSubstr("error: prefill-0: --max-context 99999 exceeds"));
  EXPECT_THAT(checked.output, HasSubstr("unified-0 "));  // which is in order
  EXPECT_THAT(checked.output,
              HasSubstr("note: elsewhere: [worker.name.elsewhere] is for a worker"));
  EXPECT_THAT(checked.output, HasSubstr("registers with 10.0.0.1:8080, dns:routers:8080"));
  EXPECT_THAT(checked.output, HasSubstr("error: wrong: --router: address \"10.0.0.1\""));
  EXPECT_THAT(checked.output, HasSubstr("not in order: 4 errors"));
}

TEST(ConfigFileIntegrationTest, CheckLooksAtASinglePartAsItWouldRunAlone) {
  const WrittenFile file(fmt::format(R"(
[worker]
model = {}
router = 10.0.0.1:8080
advertise = 10.0.0.3
max-context = 99999
[worker.name.second]
role = decode
max-context = 1024
)",
                                     SampleModel()));
  const std::string command = "check --config " + file.path();
  const CommandResult named = Shell(command + " --part second --kv-tokens 2048");
  EXPECT_EQ(named.exit_status, 0) << named.output;
  EXPECT_THAT(named.output, HasSubstr("second registers with 10.0.0.1:8080"));
  EXPECT_THAT(named.output, HasSubstr("2 of 1024 tokens"));
  const CommandResult role = Shell(command + " --part prefill");
  EXPECT_EQ(role.exit_status, 1);
  EXPECT_THAT(role.output, HasSubstr("error: prefill: --max-context 99999"));
  EXPECT_THAT(Shell(command + " --part secnod").output, HasSubstr("did you mean \"second\"?"));
}

TEST(ConfigFileIntegrationTest, CheckFindsAPortThatIsTaken) {
  const auto taken = ListenEverywhere("127.0.0.1", 0);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const std::string command =
      fmt::format("check --model {} --port {}", SampleModel(), LocalPort(taken->front()));
  const CommandResult asked = Shell(command);
  EXPECT_EQ(asked.exit_status, 1);
  EXPECT_THAT(asked.output,
              HasSubstr(fmt::format("error: router: --port {}", LocalPort(taken->front()))));
  EXPECT_EQ(Shell(command + " --skip-ports").exit_status, 0);
}

TEST(ConfigFileIntegrationTest, AValueThatCannotBeIsRefusedWithItsLine) {
  for (const auto& [text, said] : {
           std::pair("[worker]\nkv-bytes = 12XB\n", ": line 2: --kv-bytes: xb unit"),
           std::pair("[worker]\nbatch-invariant = maybe\n",
                     ": line 2: batch-invariant = maybe: give true or false"),
           std::pair("[worker]\n\nmodel = [\"a\", \"b\"]\n",
                     ": line 3: model takes one value, and has a list of 2"),
           std::pair("[worker]\nready-fd = 3\n", ": line 2: [worker] has no flag \"ready-fd\""),
       }) {
    const WrittenFile file(text);
    const CommandResult refused = Shell("worker --config " + file.path() + " 2>&1");
    EXPECT_EQ(refused.exit_status, 2) << text;
    EXPECT_THAT(refused.output, HasSubstr(file.path() + said)) << text;
  }
}

TEST(ConfigFileIntegrationTest, ASwitchThatIsOffOnTheCommandLineBeatsTheFile) {
  const WrittenFile file(fmt::format("[chat-template]\nmodel = {}\nparts = true\n", SampleModel()));
  const std::string input = R"(echo '[{"role": "user", "content": "Jane"}]' | )";
  const std::string command = "chat-template --config " + file.path();
  EXPECT_THAT(Shell(command, input).output, HasSubstr("input "));
  EXPECT_EQ(Shell(command + " --parts=false", input).output, "<|begin_of_text|>Jane\n");
}

}  // namespace
}  // namespace tandem::config_file_integration_test
