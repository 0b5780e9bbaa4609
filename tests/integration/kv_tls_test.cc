// KV over TLS between real workers: who is let in, and how the others learn why they are not.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/commands/child_process.h"
#include "tests/support/shell.h"
#include "tests/support/test_certificates.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"

namespace tandem::kv_tls_test {
namespace {

using ::testing::HasSubstr;

class KvTlsTest : public testing::Test {
 protected:
  static std::vector<std::string> Flags(const TlsFiles& files) {
    return {"--kv-tls-cert=" + files.cert, "--kv-tls-key=" + files.key, "--kv-tls-ca=" + files.ca};
  }
  static v1::GenerateRequest Request() {
    return TextRequest("It was a fine morning", v1::ROUTE_DISAGGREGATED, 8);
  }
  // Of the only prefill worker to the only decode worker; empty while it did not fail.
  static std::string Failure(const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* prefill = FindWorker(status, "prefill-0");
    return prefill == nullptr || prefill->load().links().empty()
               ? ""
               : prefill->load().links(0).failure();
  }
  // No KV gets from prefill to decode, and `tandem status --links` says `why`.
  static void ExpectNotReached(const TestClusterOptions& options, const std::string& why) {
    TestCluster cluster(options);
    cluster.WaitFor("the probe has failed",
                    [](const v1::GetStatusResponse& status) { return !Failure(status).empty(); });
    EXPECT_THAT(Shell("status --links --server " + cluster.address()).output,
                HasSubstr("prefill-0 does not reach decode-0 by tcp: "));
    EXPECT_THAT(Shell("status --links --server " + cluster.address()).output, HasSubstr(why));
    const Outcome outcome = Ask(cluster.client(), Request());
    EXPECT_FALSE(outcome.status.ok());
    cluster.WaitUntilIdle();
  }

  const std::string id_ = std::to_string(getpid());
  const TestAuthority ours_{testing::TempDir(), "ours-" + id_};
  const TestAuthority foreign_{testing::TempDir(), "foreign-" + id_};
};

TEST_F(KvTlsTest, UpServesWithIt) {
  std::vector<std::string> arguments = {"up",
                                        "--model=" + SampleModel(),
                                        "--port=0",
                                        "--prefill=1",
                                        "--decode=1",
                                        "--unified=0",
                                        "--threads=1",
                                        "--log-level=off",
                                        "--kv-transport=tcp"};
  for (std::string& flag : Flags(ours_.Issue("worker"))) arguments.push_back(std::move(flag));
  auto up = ChildProcess::Start(arguments, DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  const std::string address = up->TakeReadyLine();
  ASSERT_FALSE(address.empty());
  {
    Client client(address);
    const Outcome outcome = Ask(client, Request());
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_GT(outcome.generation.choices.at(0).finish.kv_bytes().wire(), 0u);
    const auto status = client.GetStatus(std::chrono::seconds(10));
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(Failure(*status), "");
  }
  up->Signal(SIGTERM);
  int how = 0;
  ASSERT_EQ(waitpid(up->pid(), &how, 0), up->pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

TEST_F(KvTlsTest, AWorkerWithoutItIsNotReached) {
  ExpectNotReached({.unified = 0,
                    .worker_flags = {"--kv-transport=tcp"},
                    .prefill_flags = Flags(ours_.Issue("prefill"))},
                   "has the peer the --tls or --kv-tls options, too?");
}

TEST_F(KvTlsTest, AWorkerOfAForeignAuthorityIsNotReached) {
  ExpectNotReached({.unified = 0,
                    .worker_flags = {"--kv-transport=tcp"},
                    .prefill_flags = Flags(ours_.Issue("prefill")),
                    .decode_flags = Flags(foreign_.Issue("decode"))},
                   "it must lead to an authority of --tls-ca or --kv-tls-ca");
}

TEST_F(KvTlsTest, OneFlagAloneIsRefusedNamingAllThree) {
  for (const std::string flag : {"--kv-tls-cert", "--kv-tls-key", "--kv-tls-ca"}) {
    for (const std::string command : {"up", "worker --role unified --router 127.0.0.1:1"}) {
      const CommandResult result = Shell(
          fmt::format("{} --log-level off {}=x.pem --model {} 2>&1", command, flag, SampleModel()));
      EXPECT_EQ(result.exit_status, 1) << command << flag;
      EXPECT_THAT(result.output,
                  HasSubstr("TLS needs --kv-tls-cert, --kv-tls-key and --kv-tls-ca, or none"));
    }
  }
}

}  // namespace
}  // namespace tandem::kv_tls_test
