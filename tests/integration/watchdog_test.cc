// A worker whose process lives and answers, but one of whose threads hangs.

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/frozen_thread.h"
#include "tests/support/http_peer.h"
#include "tests/support/test_cluster.h"

namespace tandem::watchdog_test {
namespace {

using ::testing::HasSubstr;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";
constexpr int32_t kLong = 1200;

// FrozenThread::Freeze gave nothing.
constexpr char kNobodyTraces[] =
    "one thread cannot be stopped here: the system lets nobody trace, or the machine is neither "
    "x86-64 nor aarch64";

class WatchdogTest : public testing::Test {
 protected:
  // flags: of the worker.
  explicit WatchdogTest(std::vector<std::string> flags = {})
      : cluster_({.prefill = 0, .decode = 0, .worker_flags = WithMetrics(std::move(flags))}) {}

  // HealthCheckResponse.status
  static constexpr char kServing[] = "\x08\x01";
  static constexpr char kNotServing[] = "\x08\x02";

  std::string Health() { return CallByBytes(worker_address_, "/grpc.health.v1.Health/Check", ""); }
  void AwaitReason(const std::string& part) {
    cluster_.WaitFor("not_ready with \"" + part + "\"", [&](const v1::GetStatusResponse& status) {
      const v1::WorkerStatus* worker = FindWorker(status, "unified-0");
      if (worker != nullptr) worker_address_ = worker->address();
      return worker != nullptr && worker->load().not_ready().empty() == part.empty() &&
             worker->load().not_ready().find(part) != std::string::npos;
    });
  }

  // Where it holds no lock that the rest of the process needs (the allocator's, one of gRPC's):
  // then all of it would hang, which its lease tells. Null where threads cannot be stopped.
  std::unique_ptr<FrozenThread> FreezeEngine() {
    while (true) {
      auto frozen = FrozenThread::Freeze(cluster_.pid("unified-0"), "engine");
      if (frozen == nullptr || IsHeardOf()) return frozen;
    }
  }

  int Ready() { return HttpGet(metrics_port_, "/readyz").status; }

  const uint16_t metrics_port_ = FreePort();
  TestCluster cluster_;
  std::string worker_address_;

 private:
  std::vector<std::string> WithMetrics(std::vector<std::string> flags) const {
    flags.push_back("--metrics-port=" + std::to_string(metrics_port_));
    return flags;
  }
  // Whether the worker reports within five heartbeats from now on.
  bool IsHeardOf() {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    const auto begin = std::chrono::steady_clock::now();
    while (true) {
      const Milliseconds passed = std::chrono::steady_clock::now() - begin;
      const auto status = cluster_.client().GetStatus(std::chrono::minutes(1));
      if (!status.ok() || passed.count() > 500) return false;
      const v1::WorkerStatus* worker = FindWorker(*status, "unified-0");
      if (worker != nullptr && worker->heartbeat_age_ms() < passed.count()) return true;
    }
  }
};

TEST_F(WatchdogTest, AHangingEngineIsNotReadyUntilItMovesAgain) {
  AwaitReason("");
  EXPECT_EQ(Health(), kServing);
  std::unique_ptr<FrozenThread> frozen;
  std::promise<void> began;
  auto outcome = std::async(std::launch::async, [this, &began] {
    Outcome whole;
    whole.status = cluster_.client().Generate(
        TextRequest(kPrompt, v1::ROUTE_UNIFIED, kLong), std::chrono::minutes(2),
        [&, told = false](const v1::GenerateResponse& event) mutable {
          if (!std::exchange(told, true)) began.set_value();
          whole.generation.Add(event);
          return true;
        });
    return whole;
  });
  began.get_future().wait();
  frozen = FreezeEngine();
  if (frozen == nullptr) {
    outcome.wait();
    GTEST_SKIP() << kNobodyTraces;
  }
  AwaitReason("engine");
  EXPECT_EQ(Health(), kNotServing);
  EXPECT_EQ(Ready(), 503);
  EXPECT_EQ(HttpGet(metrics_port_, "/livez").status, 503);
  frozen.reset();
  AwaitReason("");
  EXPECT_EQ(Health(), kServing);
  EXPECT_EQ(Ready(), 200);
  EXPECT_EQ(HttpGet(metrics_port_, "/livez").status, 200);
  const Outcome whole = outcome.get();
  EXPECT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_FALSE(whole.generation.choices.empty());
  EXPECT_EQ(whole.generation.choices[0].token_ids.size(), size_t{kLong});
  cluster_.WaitUntilIdle();
}

TEST_F(WatchdogTest, AnEngineThatHangsWithNothingToDoIsNotReadyEither) {
  AwaitReason("");
  const auto frozen = FreezeEngine();
  if (frozen == nullptr) GTEST_SKIP() << kNobodyTraces;
  AwaitReason("engine");
  EXPECT_EQ(Health(), kNotServing);
}

class ProgressWatchdogTest : public WatchdogTest {
 protected:
  ProgressWatchdogTest() : WatchdogTest({"--progress-seconds=1"}) {}

  std::string AwaitReady(int status) {
    HttpReply reply;
    do {
      reply = HttpGet(metrics_port_, "/readyz");
    } while (reply.status != status);
    return reply.body;
  }
};

TEST_F(ProgressWatchdogTest, AWorkerWhoseStepsDoNotEndIsNotReadyBeforeItsThreadIsTakenForStuck) {
  AwaitReady(200);
  auto frozen = FreezeEngine();
  if (frozen == nullptr) GTEST_SKIP() << kNobodyTraces;
  EXPECT_THAT(AwaitReady(503), HasSubstr("no step has ended for 1 s"));
  EXPECT_EQ(HttpGet(metrics_port_, "/livez").status, 200);
  frozen.reset();
  AwaitReady(200);
}

TEST(TransportWatchdogTest, AHangingTransportIsNotReadyAndItsRequestsGoElsewhere) {
  TestCluster cluster({.decode = 2, .unified = 0, .worker_flags = {"--kv-transport=tcp"}});
  const auto reason_of = [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* worker = FindWorker(status, "decode-0");
    return worker == nullptr ? std::string() : worker->load().not_ready();
  };
  auto frozen = FrozenThread::Freeze(cluster.pid("decode-0"), "kv-tcp");
  if (frozen == nullptr) {
    GTEST_SKIP() << kNobodyTraces;
  }
  // With nothing to do at all.
  cluster.WaitFor("decode-0 is not ready", [&](const v1::GetStatusResponse& status) {
    return reason_of(status).find("kv-tcp") != std::string::npos;
  });
  const Outcome outcome = Ask(cluster.client(), TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, 20));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.generation.choices[0].finish.decode_worker(), "decode-1");
  frozen.reset();
  cluster.WaitFor("decode-0 is ready again", [&](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* worker = FindWorker(status, "decode-0");
    return worker != nullptr && worker->alive() && worker->load().not_ready().empty();
  });
  cluster.WaitUntilIdle();
}

}  // namespace
}  // namespace tandem::watchdog_test
