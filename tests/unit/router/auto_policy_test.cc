// Where requests go by predicted cost.

#include <chrono>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/policy/policies.h"
#include "tests/support/measured_workers.h"
#include "tests/unit/router/auto_policy_fixture.h"

namespace tandem::auto_policy_test {
namespace {

using Basis = RouteDecision::Basis;
using auto_policy::AutoPolicyTest;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(AutoPolicyTest, AnIdleUnifiedWorkerIsTakenBecauseItMovesNothing) {
  const RouteDecision decision = Choose(OneOfEach(5), Query(500, 50));
  EXPECT_EQ(decision.route, v1::ROUTE_UNIFIED);
  ASSERT_TRUE(decision.score.prediction.has_value());
  // Two steps of 256 tokens at most: 10 + 25.6 and 10 + 24.4 ms.
  EXPECT_NEAR(decision.score.prediction->ttft.count(), 70, 0.01);
  EXPECT_EQ(decision.placements, 2u);
  ASSERT_EQ(decision.considered.size(), 2u);
  EXPECT_TRUE(decision.considered[1].score.prediction.has_value());
  EXPECT_THAT(decision.score.features, ::testing::SizeIs(4));
}

TEST_F(AutoPolicyTest, ABusyUnifiedWorkerIsLeftForAFastLinkAndKeptBeforeASlowOne) {
  Decode("u0", 12);
  int flips = 0;
  v1::Route before = v1::ROUTE_UNIFIED;
  std::map<v1::Route, int> taken;
  for (double rate = 0.00002; rate < 5; rate *= 1.5) {
    policy_ = NewAutoPolicy({.clock = clock_, .ledger = ledger_});
    const RouteDecision decision = Choose(OneOfEach(rate), Query(500, 50));
    flips += decision.route != before ? 1 : 0;
    before = decision.route;
    ++taken[before];
    // It is the cheaper one of the two, or within the error of that.
    EXPECT_TRUE(decision.score.cost == decision.considered[0].score.cost ||
                decision.basis == Basis::kWithinError);
  }
  EXPECT_EQ(flips, 1);
  EXPECT_GT(taken[v1::ROUTE_UNIFIED], 3) << "slow links";
  EXPECT_GT(taken[v1::ROUTE_DISAGGREGATED], 3) << "fast links";
}

TEST_F(AutoPolicyTest, TheMoreDecodesRunOnAUnifiedWorkerTheSoonerAPromptGoesElsewhere) {
  const ClusterView view = OneOfEach(0.003);
  EXPECT_EQ(RouteOf(view, Query(200, 50)), v1::ROUTE_UNIFIED);
  Decode("u0", 12);
  const RouteDecision busy = Choose(view, Query(200, 50));
  EXPECT_EQ(busy.route, v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(busy.basis, Basis::kLowestCost);
  // The 12 sequences would all have waited for the prompt.
  const PlacementScore& unified = busy.considered[1].score;
  EXPECT_GT(unified.prediction->externality, 12 * busy.score.prediction->stages.prefill / 4);
}

TEST_F(AutoPolicyTest, ATightTtftSloBuysTheFirstTokenAndALooseOneDoesNot) {
  const ClusterView view = OneOfEach(0.0003);  // 500 tokens take more than a second and a half
  for (int i = 0; i < 5; ++i) Wait("u0", 256);
  RouteQuery query = Query(500, 20);
  query.slo.ttft = ModelTime(10000);
  EXPECT_EQ(RouteOf(view, query), v1::ROUTE_UNIFIED);
  query.slo.ttft = ModelTime(100);
  const RouteDecision tight = Choose(view, query);
  EXPECT_EQ(tight.route, v1::ROUTE_DISAGGREGATED);
  EXPECT_LT(tight.score.prediction->ttft.count(), 100);
}

TEST_F(AutoPolicyTest, ATpotSloBuysFastDecodesWithALaterFirstToken) {
  const ClusterView view{.workers = {MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED),
                                     MeasuredWorker("u1", v1::WORKER_ROLE_UNIFIED)}};
  Decode("u0", 9);
  Wait("u1", 9000, 1);  // more than a second of prefill, and nothing decodes
  RouteQuery query = Query(100, 50);
  EXPECT_EQ(Choose(view, query).prefill.name, "u0");
  query.slo.tpot = ModelTime(15);
  const RouteDecision tight = Choose(view, query);
  EXPECT_EQ(tight.prefill.name, "u1");
  EXPECT_LT(tight.score.prediction->tpot.count(), 15);
}

TEST_F(AutoPolicyTest, ASlowerWorkerGetsFewerRequests) {
  ClusterView view{.workers = {MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED),
                               MeasuredWorker("u1", v1::WORKER_ROLE_UNIFIED)}};
  view.workers[1].costs = MeasuredCosts(2);
  std::map<std::string, int> taken;
  for (int i = 0; i < 200; ++i) {
    const RouteDecision decision = Choose(view, Query(250, 20));
    ++taken[decision.prefill.name];
    Send(decision, Query(250, 20));
    while (entries_.size() > 12) entries_.pop_front();
    clock_.Advance(std::chrono::milliseconds(5));
  }
  EXPECT_GT(taken["u0"], 1.5 * taken["u1"]);
  EXPECT_GT(taken["u1"], 10) << "it is not idle beside a busy one";
}

TEST_F(AutoPolicyTest, WithoutCostsTheLeastLoadedIsTakenAndTheReasonSaysWhose) {
  ClusterView view = OneOfEach(5);
  view.workers[0].costs = nullptr;
  SetRunning(view.workers[2], 3);
  const RouteDecision decision = Choose(view, Query(500, 50));
  EXPECT_EQ(decision.route, v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(decision.basis, Basis::kNotMeasured);
  EXPECT_THAT(decision.reason, HasSubstr("decode worker d0 has not reported"));
  EXPECT_EQ(decision.score.cost, NewLeastLoadedPolicy()->Choose(view, Query(500, 50))->score.cost);
  view.workers[0].costs = MeasuredCosts();
  EXPECT_NE(Choose(view, Query(500, 50)).basis, Basis::kNotMeasured);
}

TEST_F(AutoPolicyTest, WithoutAMeasuredLinkTheLeastLoadedIsTaken) {
  const RouteDecision decision = Choose(OneOfEach(0), Query(500, 50));
  EXPECT_EQ(decision.basis, Basis::kNotMeasured);
  EXPECT_THAT(decision.reason, HasSubstr("such as from p0 to d0"));
}

TEST_F(AutoPolicyTest, APairWithoutALinkComesLastWhereAnotherHasOne) {
  ClusterView view = OneOfEach(5);
  view.workers.insert(view.workers.begin(), MeasuredWorker("c0", v1::WORKER_ROLE_DECODE));
  RouteQuery query = Query(500, 50);
  query.wanted = v1::ROUTE_DISAGGREGATED;
  Decode("d0", 20);
  EXPECT_EQ(Choose(view, query).decode.name, "d0");
}

TEST_F(AutoPolicyTest, CostsThatAreTooLargeToBeAddedUpAreNoReasonToFail) {
  ClusterView view{.workers = {MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED),
                               MeasuredWorker("u1", v1::WORKER_ROLE_UNIFIED)}};
  view.workers[0].costs = MeasuredCosts(1e300);
  Decode("u0", 3);
  EXPECT_EQ(Choose(view, Query(250, 100)).prefill.name, "u1");
  view.workers[1].costs = MeasuredCosts(1e300);
  EXPECT_FALSE(Choose(view, Query(250, 100)).score.prediction.has_value());
}

TEST_F(AutoPolicyTest, EqualCostsGoToTheFirstOfTheLeastLoaded) {
  const ClusterView view{.workers = {MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED),
                                     MeasuredWorker("u1", v1::WORKER_ROLE_UNIFIED)}};
  const RouteDecision decision = Choose(view, Query(250, 100));
  EXPECT_EQ(decision.prefill.name, "u0");
  EXPECT_EQ(decision.basis, Basis::kLowestCost);
  EXPECT_THAT(decision.reason, IsEmpty());
}

TEST_F(AutoPolicyTest, ARequestThatFitsNowhereIsStillSentSomewhere) {
  const ClusterView view{.workers = {MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED)}};
  const RouteDecision decision = Choose(view, Query(20000, 100));  // the worker holds 16000
  EXPECT_EQ(decision.prefill.name, "u0") << "the worker says what is wrong";
  EXPECT_FALSE(decision.score.prediction.has_value());
}

TEST(FixedRouteTest, TheOtherRouteIsTakenOnlyWhereTheOwnIsNotPossible) {
  ClusterView view{.workers = {MakeWorker("d0", v1::WORKER_ROLE_DECODE),
                               MakeWorker("p0", v1::WORKER_ROLE_PREFILL),
                               MakeWorker("u0", v1::WORKER_ROLE_UNIFIED),
                               MakeWorker("u1", v1::WORKER_ROLE_UNIFIED)}};
  SetRunning(view.workers[2], 9);
  SetRunning(view.workers[3], 8);
  EXPECT_EQ(NewFixedRoutePolicy(v1::ROUTE_UNIFIED)->Choose(view, {})->prefill.name, "u1");
  SetRunning(view.workers[1], 100);
  EXPECT_EQ(NewFixedRoutePolicy(v1::ROUTE_DISAGGREGATED)->Choose(view, {})->prefill.name, "p0");
  view.workers[0].suspected = true;
  EXPECT_EQ(NewFixedRoutePolicy(v1::ROUTE_DISAGGREGATED)->Choose(view, {})->prefill.name, "u1");
}

}  // namespace
}  // namespace tandem::auto_policy_test
