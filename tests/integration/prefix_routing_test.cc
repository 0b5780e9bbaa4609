// Requests that share a prefix, or a session, over real processes.

#include <future>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"

namespace tandem::prefix_routing_test {
namespace {

constexpr int32_t kPrefixTokens = 192;  // 12 blocks

// A request that begins with the prefix of this number, and ends like no other.
v1::GenerateRequest Request(int32_t prefix, int32_t tail) {
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_UNIFIED, 40);
  for (int32_t i = 0; i < kPrefixTokens; ++i) {
    request.mutable_token_ids()->add_ids(300 + (prefix * 131 + i * 7) % 1000);
  }
  for (int32_t i = 0; i < 20; ++i) {
    request.mutable_token_ids()->add_ids(300 + (tail * 57 + i * 3) % 1000);
  }
  return request;
}

Outcome Good(TestCluster& cluster, const v1::GenerateRequest& request) {
  Outcome outcome = Ask(cluster.client(), request);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  if (outcome.generation.choices.empty()) outcome.generation.choices.emplace_back();
  return outcome;
}

std::string WorkerOf(const Outcome& outcome) {
  return outcome.generation.choices[0].finish.prefill_worker();
}

TEST(PrefixRoutingTest, RequestsThatShareAPrefixGoToOneWorkerAndOthersAreSpread) {
  constexpr int32_t kPrefixes = 8;
  TestCluster cluster(
      {.prefill = 0, .decode = 0, .unified = 2, .router_flags = {"--policy=prefix-affinity"}});
  std::vector<std::future<Outcome>> first;
  for (int32_t i = 0; i < kPrefixes; ++i) {
    first.push_back(
        std::async(std::launch::async, [&cluster, i] { return Good(cluster, Request(i, i)); }));
  }
  std::vector<std::string> workers;
  for (std::future<Outcome>& outcome : first) workers.push_back(WorkerOf(outcome.get()));
  EXPECT_EQ(std::set(workers.begin(), workers.end()).size(), 2u);
  cluster.WaitFor("the reports of what is cached", [](const v1::GetStatusResponse& status) {
    return status.prefix_index().entries() >= kPrefixes * kPrefixTokens / 16;
  });
  for (int32_t tail = 100; tail < 102; ++tail) {
    for (int32_t i = 0; i < kPrefixes; ++i) {
      const Outcome again = Good(cluster, Request(i, tail + 10 * i));
      EXPECT_EQ(WorkerOf(again), workers[i]) << "prefix " << i;
      EXPECT_GE(again.generation.summary.usage().cached_tokens(), kPrefixTokens);
    }
  }
  const auto status = cluster.client().GetStatus(std::chrono::seconds(30));
  ASSERT_TRUE(status.ok()) << status.status();
  const v1::PrefixIndexUse& index = status->prefix_index();
  EXPECT_EQ(index.predicted_tokens(), 2u * kPrefixes * kPrefixTokens);
  EXPECT_GE(index.cached_tokens(), index.predicted_tokens());
  EXPECT_LT(index.error_tokens() * 10, index.predicted_tokens());
  EXPECT_GE(index.lookups(), 3u * kPrefixes);
  EXPECT_GE(index.hits(), 2u * kPrefixes);
}

TEST(PrefixRoutingTest, ASessionStaysOnItsWorkersWhateverThePolicy) {
  TestCluster cluster(
      {.prefill = 1, .decode = 1, .unified = 2, .router_flags = {"--policy=round-robin"}});
  v1::GenerateRequest request = Request(1, 1);
  request.set_route(v1::ROUTE_AUTO);
  request.set_session_id("conversation");
  std::set<std::string> in_session;
  for (int i = 0; i < 4; ++i) in_session.insert(WorkerOf(Good(cluster, request)));
  EXPECT_EQ(in_session.size(), 1u);
  request.clear_session_id();
  std::set<std::string> without;
  for (int i = 0; i < 4; ++i) without.insert(WorkerOf(Good(cluster, request)));
  EXPECT_EQ(without.size(), 3u);
  TestCluster off({.prefill = 0,
                   .decode = 0,
                   .unified = 2,
                   .router_flags = {"--policy=round-robin", "--session-affinity=off",
                                    "--prefix-index-bytes=0"}});
  request.set_session_id("conversation");
  request.set_route(v1::ROUTE_UNIFIED);
  EXPECT_NE(WorkerOf(Good(off, request)), WorkerOf(Good(off, request)));
  const auto status = off.client().GetStatus(std::chrono::seconds(30));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_FALSE(status->has_prefix_index());
  EXPECT_FALSE(status->has_sessions());
}

}  // namespace
}  // namespace tandem::prefix_routing_test
