// The router's connection to a worker is cut without a word, while the worker's heartbeats, which
// come on another one, go on.

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/silent_proxy.h"
#include "tests/support/test_cluster.h"

namespace tandem::silent_connection_test {
namespace {

using ::testing::HasSubstr;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";
constexpr int32_t kLong = 1500;

class SilentConnectionTest : public testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;

  SilentConnectionTest() {
    cluster_.Kill("unified-0");
    cluster_.Start("unified-0",
                   {"--port=" + std::to_string(proxy_.port()), "--advertise=127.0.0.2"});
  }

  void WaitUntilReady() {
    cluster_.WaitFor("it is ready", [](const v1::GetStatusResponse& status) {
      const v1::WorkerStatus* worker = FindWorker(status, "unified-0");
      return worker != nullptr && worker->load().not_ready().empty();
    });
  }
  uint64_t Finished() {
    const auto status = cluster_.client().GetStatus(std::chrono::minutes(1));
    const v1::WorkerStatus* worker = status.ok() ? FindWorker(*status, "unified-0") : nullptr;
    return worker == nullptr ? 0 : worker->load().requests_finished();
  }

  SilentProxy proxy_;
  TestCluster cluster_{{.prefill = 0, .decode = 0, .unified = 2}};
};

// Alone it would be 15 s until the connection's own keepalive ends it, and connecting anew 20 s.
TEST_F(SilentConnectionTest, ItsRequestsGoOnElsewhereUntilItIsBack) {
  const v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, kLong);
  Outcome outcome;
  std::vector<std::future<Outcome>> others;
  int events = 0;
  Clock::time_point last = Clock::now();
  Clock::duration longest{};
  outcome.status = cluster_.client().Generate(
      request, std::chrono::minutes(1), [&](const v1::GenerateResponse& event) {
        outcome.generation.Add(event);
        if (++events == 20) {
          proxy_.FallSilent();
          for (int i = 0; i < 4; ++i) {  // until it is noticed, some of them are sent there
            others.push_back(std::async(std::launch::async, [this] {
              return Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 40));
            }));
          }
        }
        if (events > 20) longest = std::max(longest, Clock::now() - last);
        last = Clock::now();
        return true;
      });
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.generation.choices[0].token_ids.size(), size_t{kLong});
  EXPECT_EQ(outcome.generation.summary.usage().resumes(), 1);
  EXPECT_LT(longest, std::chrono::seconds(5));
  for (auto& other : others) {
    const Outcome ended = other.get();
    EXPECT_TRUE(ended.status.ok()) << ended.status;
  }

  const auto status = cluster_.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->resumes().causes_size(), 1) << status->resumes().DebugString();
  EXPECT_EQ(status->resumes().causes(0).cause(), "connection");
  const v1::WorkerStatus* cut = FindWorker(*status, "unified-0");
  ASSERT_NE(cut, nullptr) << "it is heard of";
  EXPECT_THAT(cut->load().not_ready(), HasSubstr("does not answer the router at 127.0.0.2:"));
  const Outcome meanwhile = Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 4));
  ASSERT_TRUE(meanwhile.status.ok()) << meanwhile.status;
  EXPECT_EQ(meanwhile.generation.summary.usage().resumes(), 0) << "nothing is sent there";

  proxy_.Forward();
  WaitUntilReady();
  cluster_.WaitUntilIdle();
  const uint64_t before = Finished();
  EXPECT_TRUE(Ask(cluster_.client(), TextRequest(kPrompt, v1::ROUTE_UNIFIED, 4)).status.ok());
  cluster_.WaitUntilIdle();
  cluster_.WaitFor("it was used", [before](const v1::GetStatusResponse& now) {
    const v1::WorkerStatus* worker = FindWorker(now, "unified-0");
    return worker != nullptr && worker->load().requests_finished() > before;
  });
}

}  // namespace
}  // namespace tandem::silent_connection_test
