// When the policy of predicted costs keeps a request where it is, or where such requests went
// before: a gain within the error of the prediction moves nothing.

#include <chrono>
#include <cmath>
#include <cstddef>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/policy/policies.h"
#include "tests/support/measured_workers.h"
#include "tests/unit/router/auto_policy_fixture.h"

namespace tandem::auto_policy_stability_test {
namespace {

using Basis = RouteDecision::Basis;
using auto_policy::AutoPolicyTest;
using ::testing::HasSubstr;

TEST_F(AutoPolicyTest, AGainWithinTheErrorLeavesTheRequestWithTheLeastLoaded) {
  ClusterView view{.workers = {MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED),
                               MeasuredWorker("u1", v1::WORKER_ROLE_UNIFIED)}};
  SetRunning(view.workers[1], 1);  // so that u0 is the least loaded
  view.workers[0].costs = MeasuredCosts(1.005);
  const RouteDecision near = Choose(view, Query(250, 100));
  EXPECT_EQ(near.prefill.name, "u0");
  EXPECT_EQ(near.basis, Basis::kWithinError);
  EXPECT_THAT(near.reason, HasSubstr("would gain"));
  view.workers[0].costs = MeasuredCosts(1.05);
  const RouteDecision far = Choose(view, Query(250, 100));
  EXPECT_EQ(far.prefill.name, "u1");
  EXPECT_EQ(far.basis, Basis::kLowestCost);
}

TEST_F(AutoPolicyTest, ALargeErrorIsNoReasonToStayWhereItCostsMuchMore) {
  ClusterView view{.workers = {MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED),
                               MeasuredWorker("u1", v1::WORKER_ROLE_UNIFIED)}};
  SetRunning(view.workers[1], 1);  // so that u0 is the least loaded
  view.workers[1].costs = MeasuredCosts(1, 3);
  view.workers[0].costs = MeasuredCosts(1.05, 3);
  EXPECT_EQ(Choose(view, Query(250, 100)).prefill.name, "u0");
  view.workers[0].costs = MeasuredCosts(1.5, 3);
  EXPECT_EQ(Choose(view, Query(250, 100)).prefill.name, "u1");
}

TEST_F(AutoPolicyTest, AtConstantLoadTheRouteDoesNotFlipThoughTheCheapestOneDoes) {
  Decode("u0", 8);
  clock_.Advance(std::chrono::minutes(1));
  // The rate of the link at which both routes cost the same.
  double slow = 1e-5;
  double fast = 1;
  for (int i = 0; i < 40; ++i) {
    const double rate = std::sqrt(slow * fast);
    policy_ = NewAutoPolicy({.clock = clock_, .ledger = ledger_});
    (RouteOf(OneOfEach(rate), Query(200, 50)) == v1::ROUTE_UNIFIED ? slow : fast) = rate;
  }
  policy_ = NewAutoPolicy({.clock = clock_, .ledger = ledger_});
  std::mt19937 random(7);
  const size_t background = entries_.size();
  int flips = 0;
  int flips_of_cheapest = 0;
  v1::Route taken = v1::ROUTE_AUTO;
  v1::Route cheapest = v1::ROUTE_AUTO;
  for (int i = 0; i < 2000; ++i) {  // half an hour
    const RouteQuery query = Query(195 + static_cast<int>(random() % 10), 50);
    const double noise = 0.98 + 0.04 * static_cast<double>(random() % 100) / 100;
    const RouteDecision decision = Choose(OneOfEach(slow * noise), query);
    flips += i > 0 && decision.route != taken ? 1 : 0;
    flips_of_cheapest += i > 0 && decision.considered[0].route != cheapest ? 1 : 0;
    taken = decision.route;
    cheapest = decision.considered[0].route;
    Send(decision, query);
    while (entries_.size() > background) entries_.pop_back();  // it ends before the next one comes
    clock_.Advance(std::chrono::milliseconds(900));
  }
  EXPECT_LE(flips, 1);
  EXPECT_GT(flips_of_cheapest, 20);
}

TEST_F(AutoPolicyTest, ARequestThatWaitsIsPredictedByWhatWasSentBeforeIt) {
  const ClusterView view = OneOfEach(5);
  for (int i = 0; i < 5; ++i) Wait("u0", 256);
  RouteQuery query = Query(500, 50);
  query.wanted = v1::ROUTE_UNIFIED;
  const PlacementPrediction before = *Choose(view, query).score.prediction;
  // The request itself, and others after it.
  Wait("u0", 500, 50);
  query.waits_at = {
      {.worker = {"u0", 1}, .part = entries_.back().part(), .charge = {.sequences = 1}}};
  for (int i = 0; i < 5; ++i) Wait("u0", 256);
  const PlacementPrediction waiting = *policy_->Reconsider(view, query)->score.prediction;
  EXPECT_EQ(waiting.ttft, before.ttft);
  query.waits_at.clear();
  EXPECT_GT(Choose(view, query).score.prediction->ttft, before.ttft);
}

TEST_F(AutoPolicyTest, ARequestLeavesItsQueueOnlyForMoreThanTheError) {
  ClusterView view{.workers = {MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED),
                               MeasuredWorker("u1", v1::WORKER_ROLE_UNIFIED)}};
  view.workers[0].costs = MeasuredCosts(1.005);
  RouteQuery query = Query(250, 100);
  ASSERT_EQ(Choose(view, query).prefill.name, "u1") << "both are idle, and u1 is faster";
  for (const char* const name : {"u1", "u0"}) Wait(name, 250, 100);
  entries_.erase(entries_.end() - 2);  // as many have come to u1, but this one is done
  query.waits_at = {
      {.worker = {"u0", 1}, .part = entries_.back().part(), .charge = {.sequences = 1}}};
  EXPECT_EQ(policy_->Reconsider(view, query)->prefill.name, "u0");
  view.workers[0].costs = MeasuredCosts(1.2);
  EXPECT_EQ(policy_->Reconsider(view, query)->prefill.name, "u1");
}

TEST_F(AutoPolicyTest, ARequestThatIsReconsideredIsNoHabitAndTakesNoTurn) {
  const ClusterView view = OneOfEach(5);  // the routes differ by less than the least gain
  const v1::Route usual = RouteOf(view, Query(500, 50));
  RouteQuery query = Query(500, 50);
  const bool is_unified = usual == v1::ROUTE_UNIFIED;
  query.waits_at = {{.worker = {is_unified ? "p0" : "u0", 1}}};
  if (is_unified) query.waits_at.push_back({.worker = {"d0", 1}});
  EXPECT_NE(policy_->Reconsider(view, query)->route, usual) << "it stays where it waits";
  EXPECT_EQ(RouteOf(view, Query(500, 50)), usual);
}

TEST_F(AutoPolicyTest, ARouteThatAClientAskedForIsNoHabit) {
  const ClusterView view = OneOfEach(5);  // the routes differ by less than the least gain
  const v1::Route usual = RouteOf(view, Query(500, 50));
  const v1::Route other = usual == v1::ROUTE_UNIFIED ? v1::ROUTE_DISAGGREGATED : v1::ROUTE_UNIFIED;
  RouteQuery asked = Query(500, 50);
  asked.wanted = other;
  EXPECT_EQ(RouteOf(view, asked), other);
  EXPECT_EQ(RouteOf(view, Query(500, 50)), usual);
}

}  // namespace
}  // namespace tandem::auto_policy_stability_test
