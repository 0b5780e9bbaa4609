// Requests that wait at a worker while others have nothing to do.

#include "router/attempt/queue_move.h"

#include <memory>
#include <utility>

#include "tests/support/router_fixture.h"

namespace tandem::queue_move_test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class QueueMoveTest : public RouterFixture {
 protected:
  explicit QueueMoveTest(std::unique_ptr<RoutingPolicy> policy = NewLeastLoadedPolicy())
      : RouterFixture(std::move(policy)) {
    Join("u0", v1::WORKER_ROLE_UNIFIED);
  }

  static v1::WorkerLoad Idle() {
    v1::WorkerLoad load;
    load.set_total_blocks(100);
    load.set_free_blocks(100);
    return load;
  }
  static v1::WorkerLoad Backlog(int32_t waiting) {
    v1::WorkerLoad load = Idle();
    load.set_running(2);
    load.set_waiting(waiting);
    return load;
  }
  // A heartbeat of every worker, `unified` being that of u0.
  void ReportAll(const v1::WorkerLoad& unified) {
    clock_.Advance(cluster_.options().heartbeat);
    Report("p0", Idle());
    Report("d0", Idle());
    Report("u0", unified);
  }
  // A request for any route that both decode and unified workers could take, and that ended up in
  // the queue of u0 because d0 had no room when it was asked.
  void QueueAtUnified() {
    cluster_.Charge({"u0", 1}, {.sequences = 50});
    Submit(Ask(v1::ROUTE_AUTO));
    ASSERT_THAT(workers_.Open(), ElementsAre("reserve d0"));
    RefuseReservation(ResourceExhausted("no room"));
    ASSERT_THAT(workers_.Open(), ElementsAre("generate u0"));
    cluster_.Discharge({"u0", 1}, {.sequences = 50});
  }
};

TEST_F(QueueMoveTest, ARequestInALongQueueGoesToWorkersThatHaveBecomeFree) {
  QueueAtUnified();
  ReportAll(Backlog(30));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0")) << "it may begin at any moment";
  ReportAll(Backlog(30));
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("generate u0", "reserve d0"));
  EXPECT_EQ(router_.Status().reroutes().moved(), 0u);
  Reserved();
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  EXPECT_EQ(router_.Status().reroutes().moved(), 1u);
  EXPECT_EQ(router_.Status().resumes().lost(), 0u) << "no worker was lost";
  clock_.Advance(std::chrono::milliseconds(5));
  Say("prefill p0", {999});
  Finish("prefill p0", kStop);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  const v1::Stages& stages = stream_.finishes.at(0).stages();
  EXPECT_DOUBLE_EQ(stages.earlier_attempts_ms(), 2 * ToMilliseconds(cluster_.options().heartbeat));
  EXPECT_DOUBLE_EQ(stages.ttft_ms() - stages.earlier_attempts_ms(), 5);
  ExpectNothingLeft();
}

TEST_F(QueueMoveTest, ARequestThatHasBegunStaysWhereItIs) {
  QueueAtUnified();
  Say("generate u0", {10});
  for (int i = 0; i < 5; ++i) ReportAll(Backlog(30));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  EXPECT_EQ(router_.Status().reroutes().moved(), 0u);
}

TEST_F(QueueMoveTest, ARequestThatBeginsWhileItAsksElsewhereStaysAndAsksNoMore) {
  QueueAtUnified();
  for (int i = 0; i < 2; ++i) ReportAll(Backlog(30));
  ASSERT_THAT(workers_.Open(), UnorderedElementsAre("generate u0", "reserve d0"));
  Say("generate u0", {10});
  ReportAll(Backlog(30));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  EXPECT_EQ(router_.Status().reroutes().moved(), 0u);
}

TEST_F(QueueMoveTest, BlocksThatAreReservedAfterARequestHasBegunAreGivenBack) {
  QueueAtUnified();
  for (int i = 0; i < 2; ++i) ReportAll(Backlog(30));
  Say("generate u0", {10});
  Reserved(6);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  EXPECT_THAT(workers_.released, ElementsAre("d0#6"));
  EXPECT_EQ(router_.Status().reroutes().moved(), 0u);
}

TEST_F(QueueMoveTest, ARequestStaysWhereNothingElseIsMuchBetter) {
  QueueAtUnified();
  for (int i = 0; i < 5; ++i) ReportAll(Idle());
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0")) << "there is no queue";
  cluster_.Charge({"d0", 1}, {.sequences = 20});
  for (int i = 0; i < 5; ++i) ReportAll(Backlog(30));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0")) << "d0 is more than half as busy";
}

TEST_F(QueueMoveTest, ANewRouteIsLookedForOnlyWhereAllOfItsWorkersHaveRoom) {
  ReportAll(Backlog(30));
  const auto may_find = [this] {
    const std::shared_ptr<const ClusterView> view = cluster_.View();
    return QueueMove::MayFindBetter(*view->Find({"u0", 1}), *view, 1, 100);
  };
  EXPECT_TRUE(may_find());
  cluster_.Charge({"d0", 1}, {.sequences = 20});
  EXPECT_FALSE(may_find()) << "p0 alone is no route";
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  Report("u1", Idle());
  EXPECT_TRUE(may_find());
}

// Requests that have just been sent there are not in its report yet.
TEST_F(QueueMoveTest, NoMoreRequestsMoveThanTheFreeWorkersCanBegin) {
  QueueAtUnified();
  cluster_.Charge({"d0", 1}, {.sequences = 3});
  v1::WorkerLoad small = Idle();
  small.set_free_blocks(1);  // of 16 tokens: two requests of 7 tokens
  for (int i = 0; i < 5; ++i) {
    Report("d0", small);
    clock_.Advance(cluster_.options().heartbeat);
    Report("p0", Idle());
    Report("u0", Backlog(30));
  }
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
}

TEST_F(QueueMoveTest, ARequestThatWaitsForRoomAtADecodeWorkerGoesToAFreeUnifiedOne) {
  Leave("u0");
  Leave("u0");
  Submit(Ask(v1::ROUTE_AUTO));
  ASSERT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  v1::WorkerLoad full = Backlog(0);
  full.set_running(20);
  full.mutable_handoffs()->set_waiting_reservations(5);
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(cluster_.options().heartbeat);
    Report("p0", Idle());
    Report("u1", Idle());
    Report("d0", full);
  }
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
}

// A worker's free blocks may be promised to what it decodes, so that it refuses again and again.
TEST_F(QueueMoveTest, RefusalsLeaveARequestItsPlaceAndDoNotUseUpItsMoves) {
  QueueAtUnified();
  const size_t streams = workers_.streams.size();
  int asked = 0;
  for (int i = 0; i < 40; ++i) {
    ReportAll(Backlog(30));
    if (workers_.Open().size() == 1) continue;
    ASSERT_THAT(workers_.Open(), UnorderedElementsAre("generate u0", "reserve d0"));
    RefuseReservation(ResourceExhausted("no room after all"));
    ++asked;
  }
  EXPECT_GE(asked, 10);
  EXPECT_LE(asked, 20) << "not with every report";
  EXPECT_EQ(router_.Status().reroutes().moved(), 0u);
  EXPECT_EQ(workers_.streams.size(), streams) << "it was sent to u0 once";
  while (workers_.Open().size() == 1) ReportAll(Backlog(30));
  Reserved();
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  EXPECT_EQ(router_.Status().reroutes().moved(), 1u);
}

TEST_F(QueueMoveTest, ARequestIsMovedABoundedNumberOfTimes) {
  QueueAtUnified();
  Leave("d0");
  Leave("d0");
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  for (int i = 0; i < 40; ++i) {
    const bool is_at_u0 = workers_.Find("generate u0") != nullptr;
    clock_.Advance(cluster_.options().heartbeat);
    Report("p0", Idle());
    Report("u0", is_at_u0 ? Backlog(30) : Idle());
    Report("u1", is_at_u0 ? Idle() : Backlog(30));
  }
  EXPECT_EQ(router_.Status().reroutes().moved(), 4u);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
}

// Prefers one route, and remembers what it was asked last.
class PreferringPolicy final : public RoutingPolicy {
 public:
  v1::Route preferred = v1::ROUTE_UNIFIED;
  RouteQuery asked;
  int32_t charged_at_unified = 0;  // sequences that the view of the latest decision had there
  int decisions = 0;
  int taken = 0;

 protected:
  void Begin(const Candidates& candidates, const RouteQuery& query) override {
    asked = query;
    ++decisions;
    charged_at_unified = candidates.can_unify() ? candidates.unified[0].worker->Sequences() : 0;
  }
  double Rank(const Candidate&, const RouteQuery&) const override { return 0; }
  PlacementScore Score(const Placement& placement, const RouteQuery&) const override {
    return {.cost = placement.route() == preferred ? 0.0 : 1.0};
  }
  void OnTaken(const RouteDecision&, const RouteQuery&) override { ++taken; }
};

class PreferredMoveTest : public QueueMoveTest {
 protected:
  PreferredMoveTest() : QueueMoveTest(std::make_unique<PreferringPolicy>()) {}
  PreferringPolicy& policy() { return static_cast<PreferringPolicy&>(*policy_); }
};

TEST_F(PreferredMoveTest, AQueuedRequestStaysWhereThePolicyPrefersToWait) {
  Submit(Ask(v1::ROUTE_AUTO));
  ASSERT_THAT(workers_.Open(), ElementsAre("generate u0"));
  for (int i = 0; i < 5; ++i) ReportAll(Backlog(30));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  EXPECT_EQ(policy().asked.waits_at.size(), 1u) << "the policy was asked";
  policy().preferred = v1::ROUTE_DISAGGREGATED;
  ReportAll(Backlog(30));
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("generate u0", "reserve d0"));
}

// Every worker reports in each heartbeat, and under overload thousands of requests wait.
TEST_F(PreferredMoveTest, APolicyThatPrefersToWaitIsAskedAgainAfterTwoHeartbeatsAlone) {
  Submit(Ask(v1::ROUTE_AUTO));
  ASSERT_EQ(policy().decisions, 1);
  for (int i = 0; i < 10; ++i) ReportAll(Backlog(30));
  EXPECT_EQ(policy().decisions, 1 + 10 / 2);
}

TEST_F(PreferredMoveTest, ThePolicySeesTheWorkerWithoutTheRequestThatWaitsThere) {
  Submit(Ask(v1::ROUTE_AUTO));
  ASSERT_EQ(policy().charged_at_unified, 0);
  for (int i = 0; i < 2; ++i) ReportAll(Backlog(30));
  EXPECT_EQ(policy().charged_at_unified, 2 + 30 - 1);
  ASSERT_EQ(policy().asked.waits_at.size(), 1u);
  const WaitingPart& waiting = policy().asked.waits_at[0];
  EXPECT_EQ(waiting.worker.name, "u0");
  EXPECT_EQ(waiting.charge.sequences, 1);
  EXPECT_EQ(waiting.part, &ledger_.Find(waiting.worker)->parts().front());
}

TEST_F(PreferredMoveTest, AMoveThatIsOnlyThoughtOfIsNoDecision) {
  Submit(Ask(v1::ROUTE_AUTO));
  ASSERT_EQ(policy().taken, 1);
  for (int i = 0; i < 5; ++i) ReportAll(Backlog(30));
  EXPECT_EQ(policy().taken, 1);
}

}  // namespace
}  // namespace tandem::queue_move_test
