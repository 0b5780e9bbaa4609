// Leases, snapshots and charges of workers.

#include "router/cluster/cluster.h"

#include <cmath>

#include "fmt/format.h"
#include "router/cluster/worker_costs.h"
#include "tests/support/cluster_fixture.h"

namespace tandem::cluster_test {
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

// Each request charges its worker: a router of 1,024 workers would copy all of them each time.
TEST_F(ClusterTest, WhatNobodyLooksAtIsChangedInPlace) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  const std::shared_ptr<const WorkerInfo> info = cluster_.View()->workers[0].info;
  cluster_.Charge({"u", 10}, {.sequences = 1});
  EXPECT_EQ(cluster_.View()->workers[0].charged.sequences, 1);
  EXPECT_EQ(info.use_count(), 2) << "the cluster's worker has it, and this test";
  auto held = cluster_.View();
  cluster_.Charge({"u", 10}, {.sequences = 1});
  EXPECT_EQ(info.use_count(), 3) << "the worker was copied, because somebody looks at it";
  EXPECT_EQ(held->workers[0].charged.sequences, 1);
  EXPECT_EQ(cluster_.View()->workers[0].charged.sequences, 2);
  held.reset();
  EXPECT_EQ(info.use_count(), 2);
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

StepCoefficients SomeCoefficients() {
  return {
      .alpha = {.floor_ms = 1, .base_ms = 2, .token_ms = 3, .pair_ms = 0.5},
      .beta = {.buckets = {{.max_sequences = 4, .base_ms = 5}, {.max_sequences = 8, .base_ms = 6}},
               .sequence_ms = 7,
               .context_token_ms = 0.25},
      .gamma = {.tokens = {16, 32}, .sequences = {1, 2}, .context = {64}, .gamma_ms = {4, 4, 4, 4}},
      .batch_thresh = Knee{.tokens = 32, .low = 20, .high = 40}};
}

v1::HeartbeatRequest BeatWithCosts(uint64_t revision, const StepCoefficients& coefficients) {
  v1::HeartbeatRequest request;
  request.set_name("u");
  request.set_incarnation(10);
  v1::CostModel& cost = *request.mutable_load()->mutable_cost();
  cost = ToReport(coefficients);
  cost.set_revision(revision);
  return request;
}

TEST_F(ClusterTest, AReportedCostModelPredictsWhatTheWorkersOwnDoes) {
  const StepModel model = *StepModel::Create(SomeCoefficients());
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  EXPECT_EQ(cluster_.View()->workers[0].costs, nullptr);
  ASSERT_TRUE(cluster_.Heartbeat(BeatWithCosts(1, SomeCoefficients())).ok());
  const StepModel& read = cluster_.View()->workers[0].costs->steps;
  for (const StepFeatures& step : {StepFeatures{.prefill_tokens = 40, .prefill_pairs = 820},
                                   StepFeatures{.decode_sequences = 5, .decode_context = 700},
                                   StepFeatures{20, 210, 2, 100}}) {
    EXPECT_DOUBLE_EQ(read.Step(step).count(), model.Step(step).count());
  }
  EXPECT_EQ(read.coefficients().batch_thresh->high, 40);
}

TEST_F(ClusterTest, CoefficientsAreReadOncePerRevisionAndTheErrorAlways) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  v1::HeartbeatRequest beat = BeatWithCosts(1, SomeCoefficients());
  ASSERT_TRUE(cluster_.Heartbeat(beat).ok());
  const auto first = cluster_.View()->workers[0].costs;
  ASSERT_TRUE(cluster_.Heartbeat(beat).ok());
  EXPECT_EQ(cluster_.View()->workers[0].costs, first);
  beat.mutable_load()->mutable_cost()->set_error(0.25);
  ASSERT_TRUE(cluster_.Heartbeat(beat).ok());
  EXPECT_EQ(cluster_.View()->workers[0].costs->error, 0.25);
  EXPECT_EQ(cluster_.View()->workers[0].costs->revision, 1);
  StepCoefficients slower = SomeCoefficients();
  slower.alpha.token_ms = 30;
  ASSERT_TRUE(cluster_.Heartbeat(BeatWithCosts(2, slower)).ok());
  EXPECT_EQ(cluster_.View()->workers[0].costs->steps.coefficients().alpha.token_ms, 30);
}

TEST_F(ClusterTest, ACostModelThatCannotBeIsRefusedAndTheOneBeforeStays) {
  ASSERT_TRUE(cluster_.Register(Worker("u", v1::WORKER_ROLE_UNIFIED)).ok());
  ASSERT_TRUE(cluster_.Heartbeat(BeatWithCosts(1, SomeCoefficients())).ok());
  StepCoefficients wrong = SomeCoefficients();
  wrong.alpha.token_ms = -1;
  const absl::Status refused = cluster_.Heartbeat(BeatWithCosts(2, wrong));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("load.cost"));
  v1::HeartbeatRequest nan = BeatWithCosts(1, SomeCoefficients());
  nan.mutable_load()->mutable_cost()->set_error(std::nan(""));
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_.Heartbeat(nan)));
  EXPECT_EQ(cluster_.View()->workers[0].costs->revision, 1);
}

}  // namespace
}  // namespace tandem::cluster_test
