// Whoever reads stderr may stop, or go: the service goes on, and ends when it is told to.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "server/commands/child_process.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"
#include "tests/support/wrapped_binary.h"

namespace tandem::log_test {
namespace {

// A named pipe that takes 4 KiB, for the stderr of processes.
class SmallPipe {
 public:
  SmallPipe() : path_(fmt::format("{}/tandem_log_{}", testing::TempDir(), getpid())) {
    unlink(path_.c_str());
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    reader_ = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(reader_, 0);
    fcntl(reader_, F_SETPIPE_SZ, 4096);
  }
  ~SmallPipe() {
    if (reader_ >= 0) close(reader_);
    unlink(path_.c_str());
  }
  std::string AsStderr() const { return "2>" + path_; }
  void CloseReader() { close(std::exchange(reader_, -1)); }

 private:
  const std::string path_;
  int reader_ = -1;
};

TEST(LogTest, APipeThatNobodyReadsStopsNeitherRequestsNorTheEndOfTheProcesses) {
  const SmallPipe pipe;
  TestCluster cluster({.binary = WrappedBinary("", pipe.AsStderr()),
                       .prefill = 0,
                       .decode = 0,
                       .log_level = "trace"});
  bool dropped = false;
  for (int i = 0; i < 2000 && !dropped; ++i) {
    const Outcome outcome = Ask(cluster.client(), TextRequest("It was", v1::ROUTE_UNIFIED, 2));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status << " after " << i << " requests";
    const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
    ASSERT_TRUE(status.ok()) << status.status();
    dropped = status->log_lines_dropped() > 0;
  }
  EXPECT_TRUE(dropped) << "the pipe was never full";
  EXPECT_EQ(cluster.Terminate("unified-0"), 0);
  EXPECT_EQ(cluster.Terminate("router"), 0);
}

// The process of that pid has ended and it was `up` that said how: its exit status, -1 by a signal.
int AwaitExit(pid_t pid) {
  int how = 0;
  EXPECT_EQ(waitpid(pid, &how, 0), pid);
  return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

TEST(LogTest, UpAndItsWorkersGoOnWhenTheReaderOfTheirLogHasGone) {
  SmallPipe pipe;
  auto up = ChildProcess::Start({"up", "--model=" + SampleModel(), "--port=0", "--prefill=0",
                                 "--decode=0", "--threads=1", "--log-level=info"},
                                WrappedBinary("", pipe.AsStderr()));
  ASSERT_TRUE(up.ok()) << up.status();
  Client client(up->TakeReadyLine());
  pipe.CloseReader();
  const auto worker_pid = [&client]() -> pid_t {
    client.WaitUntilConnected(std::chrono::minutes(1));
    const auto status = client.GetStatus(std::chrono::minutes(1));
    const bool ready = status.ok() && status->ready() && status->workers_size() > 0;
    return ready ? status->workers(0).pid() : 0;
  };
  const pid_t first = worker_pid();
  ASSERT_GT(first, 0);
  kill(first, SIGKILL);  // `up` says so in its log, and starts another one
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  pid_t second = first;
  while ((second == first || second == 0) && std::chrono::steady_clock::now() < deadline) {
    second = worker_pid();
    usleep(10'000);
  }
  EXPECT_TRUE(second != first && second != 0);
  EXPECT_TRUE(Ask(client, TextRequest("It was", v1::ROUTE_UNIFIED, 2)).status.ok());
  up->Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(up->pid()), 0);
}

}  // namespace
}  // namespace tandem::log_test
