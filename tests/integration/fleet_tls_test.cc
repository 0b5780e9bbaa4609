// A whole fleet with TLS at every port: it serves, and strangers get nowhere.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
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

namespace tandem::fleet_tls_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Flags(const TlsFiles& files) {
  return {"--tls-cert=" + files.cert, "--tls-key=" + files.key, "--tls-ca=" + files.ca};
}

std::vector<std::string> With(std::vector<std::string> flags,
                              const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

v1::GenerateRequest Disaggregated() {
  return TextRequest("It was a fine morning", v1::ROUTE_DISAGGREGATED, 8);
}

class FleetTlsTest : public testing::Test {
 protected:
  FleetTlsTest()
      : directory_(fmt::format("{}/fleet_tls-{}-{}", testing::TempDir(), getpid(),
                               testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~FleetTlsTest() override { std::filesystem::remove_all(directory_); }

  TlsFiles Of(const std::string& stem, const std::string& uri) const {
    return ours_.IssueFor(stem, {uri});
  }
  // Of the refusals of the router at its gRPC port.
  static uint64_t Refused(const v1::GetStatusResponse& status, const std::string& reason) {
    for (const v1::TlsRefusal& refusal : status.tls_refusals()) {
      if (refusal.port() == "grpc" && refusal.reason() == reason) return refusal.refused();
    }
    return 0;
  }

  const std::string directory_;
  const TestAuthority ours_{(std::filesystem::create_directories(directory_), directory_), "ours"};
  const TestAuthority foreign_{directory_, "foreign"};
  const TlsFiles router_ = Of("router", "spiffe://tandem/router/r");
  const TlsFiles prefill_ = Of("prefill", "spiffe://tandem/worker/prefill-0");
  const TlsFiles decode_ = Of("decode", "spiffe://tandem/worker/decode-0");
  const TlsFiles client_ = Of("client", "spiffe://tandem/client/c");
};

TEST_F(FleetTlsTest, APromptIsServedOverTheDisaggregatedRoute) {
  TestCluster cluster({.unified = 0,
                       .router_flags = With(Flags(router_), {"--tls-clients=require"}),
                       .worker_flags = {"--kv-transport=tcp"},
                       .prefill_flags = Flags(prefill_),
                       .decode_flags = Flags(decode_),
                       .client_tls = client_});
  const Outcome outcome = Ask(cluster.client(), Disaggregated());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_GT(outcome.generation.choices.at(0).finish.kv_bytes().wire(), 0u);

  // Commands get there with the same files, and not without.
  const std::string server = " --server " + cluster.address();
  const std::string ca = " --tls-ca " + client_.ca;
  const CommandResult served = Shell("generate \"It was\" --max-tokens 4" + server + ca +
                                     " --tls-cert " + client_.cert + " --tls-key " + client_.key);
  EXPECT_EQ(served.exit_status, 0) << served.output;
  EXPECT_NE(Shell("status" + server + ca + " 2>&1").exit_status, 0);
  EXPECT_THAT(Shell("status" + server + " 2>&1").output,
              HasSubstr("or one that uses TLS: then give --tls-ca"));
  const TlsFiles worker = prefill_;
  EXPECT_THAT(Shell("status" + server + ca + " --tls-cert " + worker.cert + " --tls-key " +
                    worker.key + " 2>&1")
                  .output,
              AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr("spiffe://tandem/client/*")));
  cluster.WaitFor("the refusals are counted", [](const v1::GetStatusResponse& status) {
    return Refused(status, "no_certificate") > 0 && Refused(status, "not_tls") > 0 &&
           Refused(status, "wrong_role") == 1;
  });
}

// Prometheus has the certificate of a client; a worker's and none are not enough.
TEST_F(FleetTlsTest, MetricsPortsCanBeForClientsWithACertificateAlone) {
  const uint16_t router_port = FreePort();
  const uint16_t worker_port = FreePort();
  const auto on = [](uint16_t port) {
    return std::vector<std::string>{fmt::format("--metrics-port={}", port),
                                    "--metrics-tls=require"};
  };
  TestCluster cluster(
      {.prefill = 0,
       .decode = 0,
       .router_flags = With(Flags(router_), on(router_port)),
       .worker_flags = With(Flags(Of("unified", "spiffe://tandem/worker/*")), on(worker_port)),
       .client_tls = client_});
  for (const uint16_t port : {router_port, worker_port}) {
    const auto status_of = [port](const std::string& scheme, const std::string& flags) {
      const std::string curl = "curl -s -k -o /dev/null -w '%{http_code}' ";
      return RunInShell(fmt::format("{}{} {}://127.0.0.1:{}/metrics", curl, flags, scheme, port))
          .output;
    };
    const auto with = [](const TlsFiles& files) {
      return fmt::format("--cert {} --key {}", files.cert, files.key);
    };
    EXPECT_EQ(status_of("https", with(client_)), "200");
    EXPECT_EQ(status_of("https", with(prefill_)), "403");
    EXPECT_EQ(status_of("https", ""), "000");
    EXPECT_EQ(status_of("http", ""), "000");
  }
}

TEST_F(FleetTlsTest, AWorkerUnderAnotherNameDoesNotJoin) {
  TestCluster cluster({.prefill = 0,
                       .decode = 0,
                       .unified = 0,
                       .router_flags = Flags(router_),
                       .client_tls = {.ca = ours_.ca_file()}});
  std::vector<std::string> arguments = {
      "worker",      "--role=unified",         "--name=unified-0", "--router=" + cluster.address(),
      "--threads=1", "--profile-at-start=off", "--log-level=off",  "--model=" + SampleModel()};
  for (const std::string& flag : Flags(prefill_)) arguments.push_back(flag);
  auto worker = ChildProcess::Start(arguments, DaemonBinary());
  ASSERT_TRUE(worker.ok()) << worker.status();
  cluster.WaitFor("it was refused", [](const v1::GetStatusResponse& status) {
    return Refused(status, "wrong_name") > 0;
  });
  const auto status = cluster.client().GetStatus(std::chrono::seconds(10));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->workers_size(), 0);
  worker->Signal(SIGTERM);
  waitpid(worker->pid(), nullptr, 0);
}

TEST_F(FleetTlsTest, UpServesWithOneCertificateForAllItsProcesses) {
  const TlsFiles up_files =
      ours_.IssueFor("up", {"spiffe://tandem/router/up", "spiffe://tandem/worker/*"});
  std::vector<std::string> arguments = {"up",
                                        "--model=" + SampleModel(),
                                        "--port=0",
                                        "--http-port=0",
                                        "--prefill=1",
                                        "--decode=1",
                                        "--unified=0",
                                        "--threads=1",
                                        "--log-level=off",
                                        "--kv-transport=tcp"};
  for (const std::string& flag : Flags(up_files)) arguments.push_back(flag);
  auto up = ChildProcess::Start(arguments, DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  const std::string address = up->TakeReadyLine();
  ASSERT_FALSE(address.empty());
  {
    Client client(address, {.ca = ours_.ca_file()});
    const Outcome outcome = Ask(client, Disaggregated());
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  }
  up->Signal(SIGTERM);
  int how = 0;
  ASSERT_EQ(waitpid(up->pid(), &how, 0), up->pid());
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

// The router gets the certificate of another authority, and so do the workers, while all run.
TEST_F(FleetTlsTest, CertificatesAreReplacedWithoutARestart) {
  // One file that both authorities are in.
  const std::string both = directory_ + "/both.pem";
  ASSERT_EQ(
      RunInShell("cat " + ours_.ca_file() + " " + foreign_.ca_file() + " > " + both).exit_status,
      0);
  TlsFiles router = router_;
  TlsFiles decode = decode_;
  TlsFiles prefill = prefill_;
  router.ca = decode.ca = prefill.ca = both;
  TestCluster cluster({.unified = 0,
                       .router_flags = Flags(router),
                       .worker_flags = {"--kv-transport=tcp"},
                       .prefill_flags = Flags(prefill),
                       .decode_flags = Flags(decode),
                       .client_tls = {.ca = both}});
  ASSERT_TRUE(Ask(cluster.client(), Disaggregated()).status.ok());
  const auto replace = [&](const TlsFiles& files, const std::string& stem, const std::string& uri) {
    const TlsFiles next = foreign_.IssueFor(stem, {uri});
    std::filesystem::rename(next.cert, files.cert);
    std::filesystem::rename(next.key, files.key);
  };
  replace(router, "router", "spiffe://tandem/router/r");
  replace(prefill, "prefill", "spiffe://tandem/worker/prefill-0");
  replace(decode, "decode", "spiffe://tandem/worker/decode-0");
  // Who trusts the new authority alone is served once the router has looked at its files.
  const std::string status =
      "status --server " + cluster.address() + " --tls-ca " + foreign_.ca_file();
  cluster.WaitFor("the router shows the new certificate", [&](const v1::GetStatusResponse&) {
    return Shell(status + " 2>&1").exit_status == 0;
  });
  EXPECT_NE(Shell("status --server " + cluster.address() + " --tls-ca " + ours_.ca_file() + " 2>&1")
                .exit_status,
            0);
  EXPECT_TRUE(Ask(cluster.client(), Disaggregated()).status.ok());
}

TEST_F(FleetTlsTest, FlagsThatDoNotGoTogetherAreRefused) {
  const std::string model = " --log-level off --model " + SampleModel();
  for (const std::string command : {"router", "up", "worker --role unified --router 127.0.0.1:1"}) {
    const CommandResult result = Shell(command + model + " --tls-cert x.pem 2>&1");
    EXPECT_EQ(result.exit_status, 1) << command;
    EXPECT_THAT(result.output, HasSubstr("TLS needs --tls-cert, --tls-key and --tls-ca"));
  }
  EXPECT_THAT(Shell("router" + model + " --tls-clients require 2>&1").output,
              HasSubstr("--tls-clients require needs --tls-cert"));
  EXPECT_THAT(Shell("status --tls-cert " + client_.cert + " 2>&1").output,
              HasSubstr("give both or neither"));
}

// `tandem certs` makes what the above is made of.
TEST_F(FleetTlsTest, CertsMakesCertificatesForAFleet) {
  const std::string folder = directory_ + "/made";
  const CommandResult made = Shell("certs " + folder + " --hosts llm.example,10.0.0.1");
  EXPECT_EQ(made.exit_status, 0) << made.output;
  EXPECT_THAT(made.output, AllOf(HasSubstr("spiffe://tandem/worker/*"), HasSubstr("llm.example")));
  EXPECT_THAT(made.output, Not(HasSubstr("PRIVATE")));
  const CommandResult again = Shell("certs " + folder + " 2>&1");
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.output, HasSubstr("--force"));
  EXPECT_EQ(Shell("certs " + folder + " --role worker --name decode-0").exit_status, 0);
  EXPECT_EQ(Shell("certs " + folder + " --force").exit_status, 0);
  const CommandResult checked = Shell("certs --check " + folder);
  EXPECT_EQ(checked.exit_status, 0) << checked.output;
  EXPECT_THAT(checked.output, AllOf(HasSubstr("worker-decode-0.pem"), HasSubstr("127.0.0.1"),
                                    HasSubstr("trusted by ca.pem")));
  // Of another authority from now on.
  std::filesystem::copy_file(foreign_.ca_file(), folder + "/ca.pem",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(Shell("certs --check " + folder + " 2>&1").exit_status, 1);
  EXPECT_THAT(Shell("certs " + folder + "2 --name x 2>&1").output, HasSubstr("needs --role"));
}

}  // namespace
}  // namespace tandem::fleet_tls_test
