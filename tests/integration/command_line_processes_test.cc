// Processes that a command line starts: workers that join and end when they are told to, what `up`
// starts, restarts and leaves behind, and the demo.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/commands/child_process.h"
#include "tests/integration/command_line_fixture.h"
#include "tests/support/tree.h"

namespace tandem::command_line_processes_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

// Whether one of the threads of `pid` has that name.
bool HasThread(pid_t pid, const std::string& name) {
  std::error_code error;
  const std::filesystem::path tasks = fmt::format("/proc/{}/task", pid);
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm == name) return true;
  }
  return false;
}

TEST_F(CommandLineTest, AWorkerThatNoRouterKnowsEndsWhenItIsToldTo) {
  auto worker = ChildProcess::Start({"worker", "--role=unified", "--router=127.0.0.1:1",
                                     "--log-level=off", "--model=" + SampleModel()},
                                    DaemonBinary());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto wait_until = [deadline](const std::function<bool()>& over) {
    while (!over() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  wait_until([&worker] { return HasThread(worker->pid(), "heartbeat"); });
  worker->Signal(SIGTERM);
  int how = 0;
  pid_t ended = 0;
  wait_until([&] { return (ended = waitpid(worker->pid(), &how, WNOHANG)) != 0; });
  EXPECT_EQ(ended, worker->pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  if (ended == 0) kill(worker->pid(), SIGKILL);
}

// localhost may have a second address, ::1, where no router listens.
TEST_F(CommandLineTest, AWorkerRegistersWithTheRoutersThatANameStandsFor) {
  const std::string port = cluster_->address().substr(cluster_->address().rfind(':') + 1);
  auto worker = ChildProcess::Start(
      {"worker", "--role=unified", "--name=by-name", "--router=dns:localhost:" + port,
       "--profile-at-start=off", "--log-level=off", "--model=" + SampleModel()},
      DaemonBinary());
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_NE(worker->TakeReadyLine(), "") << worker->failure();
  EXPECT_THAT(Shell("status" + Server()).output, HasSubstr("by-name"));
  worker->Signal(SIGTERM);
  int how = 0;
  EXPECT_EQ(waitpid(worker->pid(), &how, 0), worker->pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

// The child of `parent` whose command line says `word`, or 0.
pid_t FindChild(pid_t parent, const std::string& word) {
  const std::string process = "/proc/" + std::to_string(parent);
  std::ifstream children(process + "/task/" + std::to_string(parent) + "/children");
  for (pid_t child = 0; children >> child;) {
    std::ifstream file("/proc/" + std::to_string(child) + "/cmdline");
    const std::string words((std::istreambuf_iterator<char>(file)), {});
    if (words.find(word) != std::string::npos) return child;
  }
  return 0;
}

// Kills that child of `up` and waits until one of a new pid has taken its place and serves.
void KillAndWaitForAnother(const ChildProcess& up, Client& client, const std::string& word) {
  const pid_t first = FindChild(up.pid(), word);
  ASSERT_GT(first, 0) << word;
  kill(first, SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    client.WaitUntilConnected(std::chrono::seconds(30));
    const pid_t now = FindChild(up.pid(), word);
    const auto status = client.GetStatus(std::chrono::seconds(30));
    if (now > 0 && now != first && status.ok() && status->ready()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << word << " did not come back";
}

TEST(UpTest, RestartsWhatDiesAndLeavesNothingBehind) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans of `up` would become ours
  auto up = ChildProcess::Start({"up", "--model=" + SampleModel(), "--port=0", "--prefill=0",
                                 "--decode=0", "--log-level=off", "--threads=1"},
                                DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  const std::string address = up->TakeReadyLine();
  ASSERT_FALSE(address.empty());
  Client client(address);
  using namespace std::string_literals;
  for (const std::string& word : {"--name=unified-0"s, "tandem\0router"s}) {
    ASSERT_NO_FATAL_FAILURE(KillAndWaitForAnother(*up, client, word));
  }
  const Outcome outcome = Ask(client, TextRequest("It was", v1::ROUTE_AUTO, 4));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  up->Signal(SIGTERM);
  int how = 0;
  ASSERT_EQ(waitpid(up->pid(), &how, 0), up->pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  EXPECT_TRUE(ReapAllChildren(std::chrono::seconds(30))) << "a process is left";
}

// The arguments of a process, as the kernel knows them.
std::vector<std::string> ArgumentsOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
  std::vector<std::string> arguments;
  for (std::string one; std::getline(file, one, '\0');) arguments.push_back(one);
  return arguments;
}

TEST(UpTest, RouterAndWorkersGetTheFlagsThatWereGivenAndNoOthers) {
  const std::string file = testing::TempDir() + "tandem_up_" + std::to_string(getpid());
  std::ofstream(file) << "[up]\nmax-choices = 2\nmax-waiting = 7\n";
  auto up = ChildProcess::Start(
      {"up", "--model=" + SampleModel(), "--port=0", "--prefill=0", "--decode=0", "--log-level=off",
       "--threads=1", "--policy=round-robin", "--answer-buffer-bytes=1MiB", "--max-streams=100",
       "--batch-invariant", "--config=" + file},
      DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  const std::string address = up->TakeReadyLine();
  ASSERT_FALSE(address.empty());
  using namespace std::string_literals;
  const std::vector<std::string> router = ArgumentsOf(FindChild(up->pid(), "tandem\0router"s));
  const std::vector<std::string> worker = ArgumentsOf(FindChild(up->pid(), "--name=unified-0"));
  EXPECT_THAT(router, IsSupersetOf({"--policy=round-robin", "--answer-buffer-bytes=1048576",
                                    "--max-choices=2", "--max-streams=100"}));
  EXPECT_THAT(router,
              Not(Contains(AnyOf(StartsWith("--threads"), StartsWith("--max-waiting"),
                                 StartsWith("--batch-invariant"), StartsWith("--lease-ms")))));
  EXPECT_THAT(worker, IsSupersetOf({"--threads=1", "--max-waiting=7", "--batch-invariant=true",
                                    "--max-streams=100"}));
  EXPECT_THAT(worker, Not(Contains(AnyOf(StartsWith("--policy"), StartsWith("--max-choices"),
                                         StartsWith("--kv-tokens")))));
  Client client(address);
  v1::GenerateRequest request = TextRequest("It was", v1::ROUTE_AUTO, 4);
  request.set_n(3);
  const absl::Status refused = Ask(client, request).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("n=3 must be in [1, 2]"));
  up->Signal(SIGTERM);
  int how = 0;
  EXPECT_EQ(waitpid(up->pid(), &how, 0), up->pid());
  std::remove(file.c_str());
}

TEST(UpTest, AFlagOfTheRouterThatCannotBeIsRefusedAtOnce) {
  const CommandResult predictor = Shell("up --model x --output-predictor oracle 2>&1");
  EXPECT_EQ(predictor.exit_status, 2);
  EXPECT_THAT(predictor.output, HasSubstr("--output-predictor"));
  const CommandResult policy = Shell("up --model x --policy best 2>&1");
  EXPECT_EQ(policy.exit_status, 2);
  EXPECT_THAT(policy.output, HasSubstr("--policy"));
  const std::string classic = "up --port 0 --policy classic --model " + SampleModel();
  const CommandResult without = Shell(classic + " 2>&1");
  EXPECT_EQ(without.exit_status, 1);
  EXPECT_THAT(without.output, HasSubstr("give --classic-parameters FILE"));
  const CommandResult missing = Shell(classic + " --classic-parameters /no/file 2>&1");
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_THAT(missing.output, HasSubstr("--classic-parameters=/no/file"));
  const CommandResult lease =
      Shell("up --port 0 --lease-ms 999 --heartbeat-ms 500 --model " + SampleModel() + " 2>&1");
  EXPECT_EQ(lease.exit_status, 1);
  EXPECT_THAT(lease.output, AllOf(HasSubstr("--lease-ms 999"), HasSubstr("--heartbeat-ms 500")));
}

TEST(UpTest, NothingOutlivesAKilledSupervisor) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto up = ChildProcess::Start({"up", "--model=" + SampleModel(), "--port=0", "--prefill=0",
                                 "--decode=0", "--log-level=off", "--threads=1"},
                                DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  ASSERT_FALSE(up->TakeReadyLine().empty());
  up->Signal(SIGKILL);
  EXPECT_TRUE(ReapAllChildren(std::chrono::seconds(30))) << "a process lives on";
}

TEST(DemoTest, AllChecksHold) {
  const CommandResult demo =
      Shell("demo --max-tokens 16 --model " + SampleModel() + " 2>/dev/null");
  EXPECT_EQ(demo.exit_status, 0) << demo.output;
  EXPECT_THAT(demo.output, HasSubstr("All held."));
}

}  // namespace
}  // namespace tandem::command_line_processes_test
