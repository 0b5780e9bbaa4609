// What a snapshot of the cluster answers.

#include "router/cluster/cluster_view.h"

#include "tests/support/cluster_fixture.h"

namespace tandem::cluster_view_test {
namespace {

using ::testing::ElementsAre;

class ClusterViewTest : public ClusterFixture {};

TEST_F(ClusterViewTest, ARouteIsPossibleOnceAllItsRolesHaveAWorker) {
  EXPECT_TRUE(cluster_.View()->Routes().empty());
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  EXPECT_TRUE(cluster_.View()->Routes().empty());
  ASSERT_TRUE(cluster_.Register(Worker("d", v1::WORKER_ROLE_DECODE)).ok());
  EXPECT_THAT(cluster_.View()->Routes(), ElementsAre(v1::ROUTE_DISAGGREGATED));
  ASSERT_TRUE(cluster_.Register(Worker("a", v1::WORKER_ROLE_UNIFIED)).ok());
  EXPECT_THAT(cluster_.View()->Routes(), ElementsAre(v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED));
  EXPECT_THAT(Names(), ElementsAre("a", "d", "p"));
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_AUTO), 100);
}

TEST_F(ClusterViewTest, TheContextIsThatOfTheBestUsableWorkersOfTheRoute) {
  v1::RegisterRequest tiny = Worker("t", v1::WORKER_ROLE_UNIFIED);
  tiny.set_max_context_tokens(2);
  v1::RegisterRequest decode = Worker("d", v1::WORKER_ROLE_DECODE);
  decode.set_max_context_tokens(50);
  for (const v1::RegisterRequest& worker :
       {tiny, decode, Worker("p", v1::WORKER_ROLE_PREFILL), Worker("u", v1::WORKER_ROLE_UNIFIED)}) {
    ASSERT_TRUE(cluster_.Register(worker).ok());
  }
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_AUTO), 100);
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_UNIFIED), 100);
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_DISAGGREGATED), 50);
  cluster_.Suspect({"u", 10});
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_UNIFIED), 2);
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_AUTO), 50);
  cluster_.Suspect({"p", 10});
  EXPECT_EQ(cluster_.View()->MaxContextTokens(v1::ROUTE_DISAGGREGATED), 0);
}

TEST_F(ClusterViewTest, ThePeersOfAPrefillWorkerAreTheDecodeWorkers) {
  ASSERT_TRUE(cluster_.Register(Worker("d", v1::WORKER_ROLE_DECODE)).ok());
  ASSERT_TRUE(cluster_.Register(Worker("p", v1::WORKER_ROLE_PREFILL)).ok());
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  const auto peers = cluster_.View()->KvPeersOf(cluster_.View()->workers[1]);
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].name(), "d");
  EXPECT_EQ(peers[0].epoch(), 10u);
  EXPECT_EQ(peers[0].data_address(), "tcp:127.0.0.1:2");
}

TEST_F(ClusterViewTest, LoadIsTheLargerOfReportedAndCharged) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  ASSERT_TRUE(Beat("u").ok());  // 3 running
  cluster_.Charge({"u", 10}, {.sequences = 1, .prompt_tokens = 50});
  EXPECT_EQ(cluster_.View()->workers[0].Sequences(), 3);
  EXPECT_EQ(cluster_.View()->workers[0].PendingPromptTokens(), 50);
  cluster_.Charge({"u", 10}, {.sequences = 4});
  EXPECT_EQ(cluster_.View()->workers[0].Sequences(), 5);
  cluster_.Discharge({"u", 10}, {.sequences = 5, .prompt_tokens = 50});
  EXPECT_EQ(cluster_.View()->workers[0].PendingPromptTokens(), 0);
}

}  // namespace
}  // namespace tandem::cluster_view_test
