// Leases, snapshots and charges of workers.

#include "router/cluster/cluster.h"

#include "fmt/format.h"
#include "tests/support/cluster_fixture.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ClusterTest : public ClusterFixture {};

TEST_F(ClusterTest, SnapshotsNeverChange) {
  const auto before = cluster_.View();
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  EXPECT_TRUE(before->workers.empty());
  EXPECT_EQ(cluster_.View()->workers.size(), 1u);
}

// Each request charges its workers several times, and a report may have 256 KiB.
TEST_F(ClusterTest, AChargeCopiesNoReport) {
  for (int i = 0; i < 64; ++i) {
    v1::RegisterRequest worker = Worker(fmt::format("u{}", i), v1::WORKER_ROLE_UNIFIED);
    for (int link = 0; link < 64; ++link) worker.mutable_load()->add_links();
    ASSERT_TRUE(cluster_.Register(worker).ok());
  }
  const auto before = cluster_.View();
  cluster_.Charge({"u7", 10}, {.sequences = 2});
  const auto after = cluster_.View();
  ASSERT_EQ(after->workers.size(), before->workers.size());
  for (size_t i = 0; i < after->workers.size(); ++i) {
    EXPECT_EQ(after->workers[i].load, before->workers[i].load) << "one report, not a copy of it";
    EXPECT_EQ(after->workers[i].info, before->workers[i].info);
  }
  EXPECT_EQ(before->Find({"u7", 10})->charged.sequences, 0);
  EXPECT_EQ(after->Find({"u7", 10})->charged.sequences, 2);
  EXPECT_EQ(after->Find({"u7", 11}), nullptr) << "u7 has no such incarnation";
}

TEST_F(ClusterTest, LeaseLapsesWithoutHeartbeats) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  clock_.Advance(seconds(4));
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_EQ(cluster_.NextExpiry(), clock_.Now() + seconds(5));
  clock_.Advance(seconds(4));
  EXPECT_TRUE(cluster_.Expire().empty());
  clock_.Advance(seconds(1));
  EXPECT_THAT(cluster_.Expire(), ElementsAre(WorkerId{"u", 10}));
  EXPECT_TRUE(Names().empty());
  EXPECT_TRUE(absl::IsNotFound(Beat("u")));
  EXPECT_EQ(cluster_.NextExpiry(), kNoDeadline);
}

TEST_F(ClusterTest, AStallOfTheRouterItselfCostsNoLease) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  clock_.Advance(seconds(2));
  ASSERT_TRUE(cluster_.Register(Worker("v", v1::WORKER_ROLE_UNIFIED)).ok());
  clock_.Advance(seconds(8));
  cluster_.Postpone(seconds(8));
  EXPECT_THAT(cluster_.Expire(), IsEmpty());
  EXPECT_EQ(cluster_.View()->workers[0].last_report, clock_.Now() - seconds(2));
  EXPECT_EQ(cluster_.View()->workers[1].last_report, clock_.Now());
  cluster_.Postpone(seconds(1));  // no report lies in the future
  EXPECT_EQ(cluster_.View()->workers[1].last_report, clock_.Now());
  clock_.Advance(seconds(4));
  EXPECT_THAT(cluster_.Expire(), ElementsAre(WorkerId{"u", 10}));
}

TEST_F(ClusterTest, AWorkerIsSuspectedUntilItsNextHeartbeat) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  cluster_.Suspect({"u", 9});  // an earlier life
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  cluster_.Suspect({"u", 10});
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

TEST_F(ClusterTest, WorkersBeyondTheLimitAreRefusedUntilOthersHaveGone) {
  Cluster cluster(
      {.model = "sample", .lease = seconds(5), .heartbeat = seconds(1), .max_workers = 2}, clock_);
  ASSERT_TRUE(cluster.Register(Worker("a", v1::WORKER_ROLE_UNIFIED)).ok());
  ASSERT_TRUE(cluster.Register(Worker("b", v1::WORKER_ROLE_UNIFIED)).ok());
  const absl::Status status = cluster.Register(Worker("c", v1::WORKER_ROLE_UNIFIED));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-workers"));
  EXPECT_TRUE(cluster.Register(Worker("b", v1::WORKER_ROLE_UNIFIED)).ok()) << "it is known";
  cluster.Deregister("a", 10);
  cluster.Deregister("a", 10);
  EXPECT_TRUE(cluster.Register(Worker("c", v1::WORKER_ROLE_UNIFIED)).ok());
}

// Deregister is a call that anyone can make.
TEST_F(ClusterTest, AWorkerThatIsDeregisteredAndNotLeavingComesBack) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  cluster_.Deregister("u", 10);
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED))
      << "this heartbeat may have been on its way";
  clock_.Advance(seconds(1));
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

TEST_F(ClusterTest, ALeavingWorkerGetsNothingAndKeepsItsLeaseUntilItIsGone) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  cluster_.Charge({"u", 10}, {.sequences = 2});
  cluster_.Deregister("u", 10);
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  EXPECT_TRUE(cluster_.View()->workers[0].leaving);
  clock_.Advance(seconds(4));
  ASSERT_TRUE(Beat("u", 10, true).ok());
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  clock_.Advance(seconds(4));
  EXPECT_TRUE(cluster_.Expire().empty());
  cluster_.Deregister("u", 10);
  EXPECT_TRUE(Names().empty());
}

TEST_F(ClusterTest, AWorkerThatIsNotReadyGetsNothingUntilItIs) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  v1::HeartbeatRequest stuck;
  stuck.set_name("u");
  stuck.set_incarnation(10);
  stuck.mutable_load()->set_not_ready("no step for 4 s");
  ASSERT_TRUE(cluster_.Heartbeat(stuck).ok());
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

TEST_F(ClusterTest, TheListenerIsCalledForWorkersAndNotForCharges) {
  int news = 0;
  cluster_.SetListener([&news] { ++news; });
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  EXPECT_EQ(news, 1);
  ASSERT_TRUE(Beat("u").ok());
  EXPECT_EQ(news, 2);
  cluster_.Charge({"u", 10}, {.sequences = 2});
  cluster_.Deregister("nobody", 10);
  EXPECT_EQ(news, 2);
  cluster_.Deregister("u", 10);
  EXPECT_EQ(news, 3);
}

}  // namespace
}  // namespace tandem
