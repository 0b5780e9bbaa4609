// Where requests go by predicted cost.

#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/policy/objective.h"
#include "router/policy/policies.h"
#include "tests/support/fake_clock.h"
#include "tests/support/measured_workers.h"

namespace tandem::auto_policy_test {
namespace {

using Basis = RouteDecision::Basis;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AutoPolicyTest : public testing::Test {
 protected:
  // Requests came long ago, so that the few of a test are no high rate of arrivals.
  AutoPolicyTest() {
    for (const char* const name : {"d0", "p0", "u0", "u1"}) Wait(name, 1);
    entries_.clear();
    clock_.Advance(std::chrono::minutes(1));
  }
  // One worker of each role; the KV link carries so many gigabytes per second.
  static ClusterView OneOfEach(double link_gb_per_s) {
    ClusterView view{.workers = {MeasuredWorker("d0", v1::WORKER_ROLE_DECODE),
                                 MeasuredWorker("p0", v1::WORKER_ROLE_PREFILL),
                                 MeasuredWorker("u0", v1::WORKER_ROLE_UNIFIED)}};
    SetLink(view.workers[1], "d0", link_gb_per_s);
    return view;
  }
  static RouteQuery Query(int32_t prompt, double output) {
    return {.prompt_tokens = prompt,
            .context_tokens = prompt + static_cast<int32_t>(output),
            .expected_output_tokens = output};
  }
  RouteDecision Choose(const ClusterView& view, const RouteQuery& query) {
    const auto decision = policy_->Choose(view, query);
    EXPECT_TRUE(decision.ok()) << decision.status();
    return *decision;
  }
  v1::Route RouteOf(const ClusterView& view, const RouteQuery& query) {
    return Choose(view, query).route;
  }
  // `count` sequences decode at the worker, with many tokens to go.
  void Decode(const std::string& name, int count) {
    for (int i = 0; i < count; ++i) {
      Wait(name, 100);
      entries_.back().AddTokens(1);
    }
  }
  // A request waits at the worker.
  void Wait(const std::string& name, int32_t prompt, int32_t output = 1000) {
    entries_.push_back(ledger_.Add({name, 1}, {.prompt_tokens = prompt,
                                               .output_tokens = static_cast<double>(output),
                                               .most_output_tokens = output}));
  }
  // What the decision sends to its workers is in flight until Forget.
  void Send(const RouteDecision& decision, const RouteQuery& query) {
    const bool is_unified = decision.route == v1::ROUTE_UNIFIED;
    RequestPart part{.kind = is_unified ? RequestPart::Kind::kUnified : RequestPart::Kind::kPrefill,
                     .prompt_tokens = query.prompt_tokens,
                     .output_tokens = query.expected_output_tokens,
                     .most_output_tokens = 1000};
    entries_.push_back(ledger_.Add(decision.prefill, part));
    if (is_unified) return;
    entries_.back().Send();
    part.kind = RequestPart::Kind::kDecode;
    entries_.push_back(ledger_.Add(decision.decode, part));
  }

  FakeClock clock_;
  RequestLedger ledger_{clock_};
  std::deque<RequestLedger::Entry> entries_;
  std::unique_ptr<RoutingPolicy> policy_ = NewAutoPolicy({.clock = clock_, .ledger = ledger_});
};

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

TEST(ObjectiveTest, OnlyWhatTwoPlacementsDifferInCanBeWrongOfTheirDifference) {
  PlacementPrediction a;
  a.stages.queue = ModelTime(400);
  a.stages.decode = ModelTime(5000);
  PlacementPrediction b;
  b.stages.transfer = ModelTime(300);
  b.stages.decode = ModelTime(5000);
  EXPECT_DOUBLE_EQ(DifferenceErrorMs(a, b, 0.1), 0.1 * std::hypot(3 * 400, 300))
      << "the wait for the first token weighs three times as much";
  EXPECT_DOUBLE_EQ(DifferenceErrorMs(a, a, 0.1), 0);
}

TEST(ObjectiveTest, TheRiskToMissAnSloCountsMoreThanTimeAndGrowsWithTheDelay) {
  PlacementPrediction p;
  p.e2e = ModelTime(1000);
  const auto slo_ms = [&p](double ttft, double tpot) {
    p.ttft = ModelTime(ttft);
    p.tpot = ModelTime(tpot);
    return CostOf(p, {.ttft = ModelTime(100), .tpot = ModelTime(20)}, 50, 0.1).slo_ms;
  };
  EXPECT_NEAR(slo_ms(50, 10), 0, 1e-6);
  EXPECT_NEAR(slo_ms(100, 10), 30000, 1) << "it may be met or missed";
  EXPECT_GT(slo_ms(300, 10), 60000);
  EXPECT_GT(slo_ms(400, 10), slo_ms(300, 10));
  EXPECT_GT(slo_ms(300, 40), slo_ms(300, 10) + 60000) << "both are missed";
  EXPECT_EQ(CostOf(p, {}, 50, 0.1).slo_ms, 0);
}

TEST(ObjectiveTest, OthersCountThatAreNearTheirSloAndNotThoseThatMissItAnyway) {
  PlacementPrediction p;
  p.externality = ModelTime(1000);
  p.others_output_tokens = 100;  // so that their TPOTs rise by 10 ms, all together
  p.later_prompts = ModelTime(10);
  const auto others_slo_ms = [&p](double ttft, double tpot) {
    p.ttft = ModelTime(ttft);
    p.tpot = ModelTime(tpot);
    return CostOf(p, {.ttft = ModelTime(100), .tpot = ModelTime(20)}, 50, 0.1).others_slo_ms;
  };
  EXPECT_NEAR(others_slo_ms(30, 10), 0, 1e-3) << "they have time enough";
  // A normal distribution with a deviation of 2 ms has 0.2 of its mass in the middle millisecond.
  EXPECT_NEAR(others_slo_ms(30, 20), 60000 * 0.2 * 10, 1000);
  EXPECT_NEAR(others_slo_ms(30, 60), 0, 1) << "they miss it anyway";
  EXPECT_NEAR(others_slo_ms(100, 10), 60000 * 0.04 * 10, 500);
  EXPECT_NEAR(others_slo_ms(900, 10), 0, 1);
  EXPECT_EQ(CostOf(p, {}, 50, 0.1).others_slo_ms, 0);
}

// A prompt that takes the whole of the time allowed misses it at every worker. Where it delays
// others, these may have short prompts, and so it is better put where nobody waits.
TEST(ObjectiveTest, APromptThatIsTooLongAnywayMindsTheShortOnesBehindIt) {
  PlacementPrediction p;
  p.later_prompts = ModelTime(10);
  const auto others_slo_ms = [&p](double queue, double prefill) {
    p.stages.queue = ModelTime(queue);
    p.stages.prefill = ModelTime(prefill);
    p.ttft = ModelTime(queue + prefill);
    return CostOf(p, {.ttft = ModelTime(100)}, 50, 0.1).others_slo_ms;
  };
  // A normal distribution with a deviation of 65 ms has 0.0034 of its mass in the millisecond that
  // is 70 ms from its middle.
  EXPECT_NEAR(others_slo_ms(40, 130), 60000 * 0.0034 * 10, 100);
  EXPECT_NEAR(others_slo_ms(900, 130), 0, 1) << "behind such a queue the short ones miss it, too";
}

TEST(ObjectiveTest, TheWaitOfRequestsThatComeLaterCounts) {
  PlacementPrediction p;
  p.e2e = ModelTime(1000);
  p.ttft = ModelTime(100);
  EXPECT_DOUBLE_EQ(CostOf(p, {}, 50, 0.1).total_ms(), 1000 + 2 * 100);
  p.later_prompts = ModelTime(50);
  EXPECT_DOUBLE_EQ(CostOf(p, {}, 50, 0.1).total_ms(), 1000 + 2 * 100 + 3 * 50);
}

TEST(ObjectiveTest, ALongBacklogCountsWhereNoSloIsKept) {
  PlacementPrediction p;
  p.e2e = ModelTime(1000);
  p.ttft = ModelTime(100);
  p.later_prompts = ModelTime(50);
  p.backlog_prompts = ModelTime(70);
  p.backlog_transfers = ModelTime(20);
  EXPECT_DOUBLE_EQ(CostOf(p, {}, 50, 0.1).externality_ms, 3 * 70 + 20);
  EXPECT_DOUBLE_EQ(CostOf(p, {.ttft = ModelTime(1000)}, 50, 0.1).externality_ms, 3 * 50);
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
