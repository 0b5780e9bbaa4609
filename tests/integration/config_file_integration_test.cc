// Processes that take their flags from one file.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/commands/child_process.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

constexpr char kModel[] = TANDEM_SOURCE_DIR "/models/sample";

// A file of this process and test that is gone afterwards.
class WrittenFile {
 public:
  explicit WrittenFile(const std::string& text)
      : path_(fmt::format("{}tandem_config_{}_{}", testing::TempDir(), getpid(),
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
                     kModel, router);
}

TEST(ConfigFileIntegrationTest, ARouterAndWorkersOfOneFileAnswerARequest) {
  const WrittenFile file(FileWith("127.0.0.1:1"));
  auto router = ChildProcess::Start({"router", "--config", file.path()}, TANDEM_BINARY);
  ASSERT_TRUE(router.ok()) << router.status();
  const std::string address = router->TakeReadyLine();
  ASSERT_FALSE(address.empty()) << router->failure();
  file.Write(FileWith(address));
  auto prefill =
      ChildProcess::Start({"worker", "--role=prefill", "--config", file.path()}, TANDEM_BINARY);
  // The file says its role.
  auto decode =
      ChildProcess::Start({"worker", "--name=second", "--config", file.path()}, TANDEM_BINARY);
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
                                     kModel));
  auto up = ChildProcess::Start({"up", "--config", file.path(), "--max-waiting=7"}, TANDEM_BINARY);
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
  const WrittenFile file(fmt::format("[chat-template]\nmodel = {}\nparts = true\n", kModel));
  const std::string input = R"(echo '[{"role": "user", "content": "Jane"}]' | )";
  const std::string command = "chat-template --config " + file.path();
  EXPECT_THAT(Shell(command, input).output, HasSubstr("input "));
  EXPECT_EQ(Shell(command + " --parts=false", input).output, "<|begin_of_text|>Jane\n");
}

}  // namespace
}  // namespace tandem
