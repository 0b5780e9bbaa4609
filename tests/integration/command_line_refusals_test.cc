// Flags and surroundings with which a process cannot start: it ends at once and says what to change.

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/assembly/host_memory.h"
#include "tests/integration/command_line_fixture.h"
#include "tests/support/sanitized.h"
#include "tests/support/tree.h"

namespace tandem::command_line_refusals_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CommandLineTest, BadStartsSayWhatIsWrong) {
  const CommandResult model =
      Shell("worker --role unified --model /nowhere --router 127.0.0.1:1 --log-level off 2>&1");
  EXPECT_EQ(model.exit_status, 1);
  EXPECT_THAT(model.output, StartsWith("error: NOT_FOUND: /nowhere"));
  const CommandResult pool = Shell(std::string("worker --role unified --router 127.0.0.1:1 "
                                               "--kv-tokens 3 --log-level off --model ") +
                                   SampleModel() + " 2>&1");
  EXPECT_EQ(pool.exit_status, 1);
  EXPECT_THAT(pool.output, HasSubstr("--kv-tokens"));
  const CommandResult progress = Shell(std::string("worker --role unified --router 127.0.0.1:1 "
                                                   "--progress-seconds 0.2 --log-level off "
                                                   "--model ") +
                                       SampleModel() + " 2>&1");
  EXPECT_EQ(progress.exit_status, 1);
  EXPECT_THAT(progress.output, HasSubstr("--progress-seconds 0.2: give at least 1, or off"));
  EXPECT_EQ(
      Shell("worker --role unified --model x --router 127.0.0.1:1 --schedule soon 2>/dev/null")
          .exit_status,
      2);
  const std::string port = cluster_->address().substr(cluster_->address().rfind(':') + 1);
  const CommandResult taken =
      Shell("router --log-level off --port " + port + " --model " + SampleModel() + " 2>/dev/null");
  EXPECT_EQ(taken.exit_status, 1);
  EXPECT_EQ(Shell("up --prefill 1 --decode 0 --unified 0 --model x 2>/dev/null").exit_status, 1);
}

TEST_F(CommandLineTest, UpSaysOnOneLineWhyItCannotStart) {
  for (const auto& [flags, said] :
       {std::pair(std::string("--model /nowhere"), "/nowhere"),
        std::pair("--kv-tokens 3 --port 0 --model " + SampleModel(), "--kv-tokens")}) {
    const CommandResult failed = Shell("up --prefill 2 --decode 2 " + flags + " 2>&1");
    EXPECT_EQ(failed.exit_status, 1);
    EXPECT_EQ(std::count(failed.output.begin(), failed.output.end(), '\n'), 1) << failed.output;
    EXPECT_THAT(failed.output, AllOf(StartsWith("error: "), HasSubstr(said)));
  }
}

TEST_F(CommandLineTest, AStartWithoutDescriptorsSaysSo) {
  const std::string worker = "worker --role unified --router 127.0.0.1:1 --log-level off --model " +
                             SampleModel() + " 2>&1";
  const std::string router = "router --port 0 --model " + SampleModel() + " 2>&1";
  for (const int descriptors : {20, 32, 48}) {
    for (const std::string& command : {worker, router}) {
      const CommandResult refused = Shell(command, fmt::format("ulimit -n {};", descriptors));
      EXPECT_EQ(refused.exit_status, 1) << refused.output;
      EXPECT_THAT(refused.output, StartsWith(fmt::format("error: RESOURCE_EXHAUSTED: this process "
                                                         "may open {} files",
                                                         descriptors)));
    }
  }
}

TEST_F(CommandLineTest, AStartWithoutMemorySaysSo) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes terabytes of address space";
  const std::string worker = "worker --role unified --router 127.0.0.1:1 --log-level off --model " +
                             SampleModel() + " 2>&1";
  for (const int megabytes : {200, 300}) {
    const CommandResult refused =
        Shell(worker, fmt::format("ulimit -v {}; timeout 60", megabytes * 1000));
    EXPECT_EQ(refused.exit_status, 1) << megabytes << " MB: " << refused.output;
    EXPECT_THAT(refused.output, StartsWith("error: RESOURCE_EXHAUSTED: ")) << megabytes << " MB";
  }
}

TEST_F(CommandLineTest, AWorkerWithoutItsSharedMemorySaysHowToGoOn) {
  // No file of more than half a megabyte: shared memory is one.
  const std::string limited = "ulimit -f 1024;";
  const std::string worker = " --kv-buffer-bytes=12MiB --log-level off --model " + SampleModel() +
                             " --router 127.0.0.1:1 2>&1";
  const CommandResult relay =
      Shell("worker --role prefill --kv-transport=shm,tcp" + worker, limited);
  EXPECT_EQ(relay.exit_status, 1);
  EXPECT_THAT(relay.output, StartsWith("error: UNAVAILABLE: shared memory for KV: "));
  EXPECT_THAT(relay.output, HasSubstr("--kv-buffer-bytes=12582912"));
  EXPECT_THAT(relay.output, HasSubstr("--kv-transport=tcp"));
  const CommandResult sharing =
      Shell("worker --role prefill --kv-transport=ipc,tcp" + worker, limited);
  EXPECT_EQ(sharing.exit_status, 1);
  EXPECT_THAT(sharing.output, StartsWith("error: RESOURCE_EXHAUSTED: KV pool of "));
  EXPECT_THAT(sharing.output, HasSubstr("File too large"));
  EXPECT_THAT(sharing.output, HasSubstr("--kv-transport=shm,tcp"));
}

TEST_F(CommandLineTest, SizesBelowZeroAreRefusedWithTheirValue) {
  const std::string worker = " worker --role decode --router 127.0.0.1:1 --model x";
  for (const char* flag :
       {"--kv-bandwidth", "--kv-buffer-bytes", "--kv-bytes", "--host-kv-bytes"}) {
    for (const char* value : {"-5", "-5MB"}) {
      const CommandResult refused = Shell(fmt::format("{} {}={} 2>&1", worker, flag, value));
      EXPECT_EQ(refused.exit_status, 2) << flag;
      EXPECT_THAT(refused.output, HasSubstr(fmt::format("{}: {} is no size", flag, value)));
    }
  }
  const CommandResult router = Shell("router --model x --stream-buffer-bytes=-1 2>&1");
  EXPECT_EQ(router.exit_status, 2);
  EXPECT_THAT(router.output, HasSubstr("--stream-buffer-bytes: -1 is no size"));
}

TEST_F(CommandLineTest, NumbersThatCannotBeAreRefusedWithTheirValue) {
  const CommandResult negative = Shell("router --model x --max-resumes -1 2>&1");
  EXPECT_EQ(negative.exit_status, 2);
  EXPECT_THAT(negative.output, StartsWith("--max-resumes: -1 is no number from 0 on\n"));
  const CommandResult none = Shell("router --model x --max-in-flight 0 2>&1");
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_THAT(none.output, StartsWith("--max-in-flight: 0 is no number above 0\n"));
  const CommandResult lease = Shell("router --model x --lease-ms 999 --heartbeat-ms 500 2>&1");
  EXPECT_EQ(lease.exit_status, 1);
  EXPECT_THAT(lease.output, AllOf(HasSubstr("--lease-ms 999"), HasSubstr("--heartbeat-ms 500")));
}

TEST_F(CommandLineTest, AddressesThatNobodyReachesAreRefused) {
  const std::string worker = "worker --role decode --log-level off --model x ";
  for (const auto& [flags, said] : {
           std::pair("--router 127.0.0.1:1 --host 0.0.0.0", "--host 0.0.0.0: nobody can connect"),
           std::pair("--router 127.0.0.1:1 --advertise ::", "--advertise ::: nobody can connect"),
           std::pair("--router nonsense", "--router: address \"nonsense\""),
           std::pair("--router dns:routers", "--router: \"dns:routers\": must be dns:NAME:PORT"),
           std::pair("--router 127.0.0.1:1 --advertise-data 10.0.0.2:7000",
                     "--advertise-data: endpoint \"10.0.0.2:7000\""),
           std::pair("--router 127.0.0.1:1 --advertise-data shm:x", "\"shm\": only tcp"),
           std::pair("--router 127.0.0.1:1 --advertise-data tcp:here", "address \"here\""),
       }) {
    const CommandResult refused = Shell(worker + flags + " 2>&1");
    EXPECT_EQ(refused.exit_status, 1) << flags;
    EXPECT_THAT(refused.output, HasSubstr(said)) << flags;
  }
}

// A file may have sections of several commands, but none with a flag that its command does not
// have.
TEST_F(CommandLineTest, AFileOfFlagsWithAnUnknownFlagIsRefused) {
  const std::string path = testing::TempDir() + "/unknown_flag.ini";
  for (const auto& [text, said] : {
           std::pair(
               "[worker]\nkv-transprot = tcp\n",
               "line 2: [worker] has no flag \"kv-transprot\": did you mean \"kv-transport\"?"),
           std::pair("[router]\nmodel = /nowhere\n[wroker]\nrole = decode\n",
                     "line 3: there is no section [wroker]: did you mean \"worker\"?"),
           std::pair("[router]\nmodel = /nowhere\n[worker]\nrole = decode\n", "NOT_FOUND"),
       }) {
    std::ofstream(path) << text;
    const CommandResult refused = Shell("router --log-level off --config " + path + " 2>&1");
    EXPECT_NE(refused.exit_status, 0) << text;
    EXPECT_THAT(refused.output, HasSubstr(said)) << text;
  }
}

TEST_F(CommandLineTest, ATransportUnderAnotherNameIsToldItsOwn) {
  const CommandResult refused =
      Shell("worker --role decode --router 127.0.0.1:1 --model x --kv-transport=cuda_ipc 2>&1");
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.output, HasSubstr("\"cuda_ipc\" is called ipc here"));
}

// Together: each part would fit by itself.
TEST_F(CommandLineTest, AWorkerThatWouldTakeMoreMemoryThanThereIsSaysOfWhat) {
  const int64_t limit = HostMemoryLimit();
  const CommandResult refused = Shell(fmt::format(
      "worker --role unified --router 127.0.0.1:1 --log-level off --model {} --kv-bytes={} "
      "--host-kv-bytes={} 2>&1",
      SampleModel(), limit / 10 * 6, limit / 10 * 6));
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.output, StartsWith("error: RESOURCE_EXHAUSTED: this worker would take "));
  EXPECT_THAT(refused.output, HasSubstr("--host-kv-bytes"));
}

}  // namespace
}  // namespace tandem::command_line_refusals_test
