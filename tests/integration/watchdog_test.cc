// A worker whose process lives and answers, but whose engine hangs.

#include <future>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/frozen_thread.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";
constexpr int32_t kLong = 1200;

class WatchdogTest : public testing::Test {
 protected:
  // HealthCheckResponse.status
  static constexpr char kServing[] = "\x08\x01";
  static constexpr char kNotServing[] = "\x08\x02";

  std::string Health() { return CallByBytes(worker_address_, "/grpc.health.v1.Health/Check", ""); }
  void AwaitReason(const std::string& part) {
    cluster_.WaitFor("not_ready with \"" + part + "\"", [&](const v1::GetStatusResponse& status) {
      const v1::WorkerStatus* worker = FindWorker(status, "unified-0");
      if (worker != nullptr) worker_address_ = worker->address();
      return worker != nullptr && worker->not_ready().empty() == part.empty() &&
             worker->not_ready().find(part) != std::string::npos;
    });
  }

  TestCluster cluster_{TestClusterOptions{.prefill = 0, .decode = 0}};
  std::string worker_address_;
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
  frozen = FrozenThread::Freeze(cluster_.pid("unified-0"), "engine");
  if (frozen == nullptr) {
    outcome.wait();
    GTEST_SKIP() << "this system lets nobody trace, so that one thread could be stopped";
  }
  AwaitReason("engine");
  EXPECT_EQ(Health(), kNotServing);
  frozen.reset();
  AwaitReason("");
  EXPECT_EQ(Health(), kServing);
  const Outcome whole = outcome.get();
  EXPECT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_FALSE(whole.generation.choices.empty());
  EXPECT_EQ(whole.generation.choices[0].token_ids.size(), size_t{kLong});
  cluster_.WaitUntilIdle();
}

}  // namespace
}  // namespace tandem
