// The frame of every routing policy: which placements are scored, and which one is taken.

#include <algorithm>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/policy/policies.h"
#include "tests/support/worker_views.h"

namespace tandem::placement_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Scores placements as the test says, by the names of their workers.
class ScriptedPolicy final : public RoutingPolicy {
 public:
  std::map<std::string, PlacementScore> scores;  // "u0", "p0 d0"; others cost 100
  std::map<std::string, double> ranks;           // others rank 0
  mutable std::vector<std::string> scored;

 protected:
  double Rank(const Candidate& candidate, const RouteQuery&) const override {
    const auto found = ranks.find(candidate.worker->id.name);
    return found == ranks.end() ? 0 : found->second;
  }
  PlacementScore Score(const Placement& placement, const RouteQuery&) const override {
    std::string name = placement.prefill->id.name;
    if (placement.decode != nullptr) name += " " + placement.decode->id.name;
    scored.push_back(name);
    const auto found = scores.find(name);
    return found == scores.end() ? PlacementScore{.cost = 100} : found->second;
  }
};

// `count` workers of each role: d00, d01, ..., p00, ..., u00, ...
ClusterView ManyOfEach(int count) {
  ClusterView view;
  for (const auto& [letter, role] :
       {std::pair{"d", v1::WORKER_ROLE_DECODE}, std::pair{"p", v1::WORKER_ROLE_PREFILL},
        std::pair{"u", v1::WORKER_ROLE_UNIFIED}}) {
    for (int i = 0; i < count; ++i) {
      view.workers.push_back(
          MakeWorker(std::string(letter) + (i < 10 ? "0" : "") + std::to_string(i), role));
    }
  }
  return view;
}

TEST(PlacementTest, EveryPairAndEveryUnifiedWorkerIsScoredAndTheCheapestTaken) {
  ScriptedPolicy policy;
  policy.scores["p01 d00"] = {.cost = 3};
  policy.scores["u01"] = {.cost = 4};
  const auto decision = policy.Choose(ManyOfEach(2), {});
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_THAT(policy.scored,
              UnorderedElementsAre("u00", "u01", "p00 d00", "p00 d01", "p01 d00", "p01 d01"));
  EXPECT_EQ(decision->route, v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(decision->prefill, (WorkerId{"p01", 1}));
  EXPECT_EQ(decision->decode, (WorkerId{"d00", 1}));
  EXPECT_EQ(decision->score.cost, 3);
}

TEST(PlacementTest, EqualCostsGoToUnifiedAndThenToTheLowestRank) {
  ScriptedPolicy policy;
  const ClusterView view = ManyOfEach(2);
  policy.ranks = {{"u00", 2}, {"u01", 1}, {"p00", 2}, {"p01", 1}, {"d00", 2}, {"d01", 1}};
  EXPECT_EQ(policy.Choose(view, {})->prefill.name, "u01");
  const auto split = policy.Choose(view, {.wanted = v1::ROUTE_DISAGGREGATED});
  EXPECT_EQ(split->prefill.name, "p01");
  EXPECT_EQ(split->decode.name, "d01");
}

TEST(PlacementTest, OfManyWorkersOnlyTheBestOfEachRoleArePaired) {
  ScriptedPolicy policy;
  ClusterView view = ManyOfEach(100);
  policy.ranks = {{"p99", -1}, {"d98", -1}};
  policy.scores["p99 d98"] = {.cost = 1};
  const auto decision = policy.Choose(view, {});
  EXPECT_EQ(decision->prefill.name, "p99");
  EXPECT_EQ(decision->decode.name, "d98");
  EXPECT_EQ(policy.scored.size(),
            RoutingPolicy::kShortlist + RoutingPolicy::kShortlist * RoutingPolicy::kShortlist);
}

TEST(PlacementTest, OnlyTheHolderOfThePromptPrefillsWhereAWorkerCanDecode) {
  ScriptedPolicy policy;
  ClusterView view = ManyOfEach(2);
  ASSERT_TRUE(policy.Choose(view, {.prompt_at = {{"p01", 1}}}).ok());
  EXPECT_THAT(policy.scored, UnorderedElementsAre("p01 d00", "p01 d01"));
  policy.scored.clear();
  ASSERT_TRUE(
      policy.Choose(view, {.excluded = {{"d00", 1}, {"d01", 1}}, .prompt_at = {{"p01", 1}}}).ok());
  EXPECT_THAT(policy.scored, UnorderedElementsAre("u00", "u01"));
}

TEST(PlacementTest, APlacementThatThePolicyRefusesIsNotTakenHoweverCheap) {
  ScriptedPolicy policy;
  const ClusterView view = ManyOfEach(1);
  policy.scores["u00"] = {.cost = 1, .ineligible = "no link was measured"};
  EXPECT_EQ(policy.Choose(view, {})->route, v1::ROUTE_DISAGGREGATED);
  policy.scores["p00 d00"] = {.cost = 1, .ineligible = "the deadline cannot be met"};
  const auto none = policy.Choose(view, {});
  EXPECT_TRUE(absl::IsUnavailable(none.status()));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("the deadline cannot be met"));
}

TEST(PlacementTest, APolicyMayPreferAnotherPlacementThanTheCheapestAndSaysWhy) {
  class Picky final : public RoutingPolicy {
   protected:
    double Rank(const Candidate&, const RouteQuery&) const override { return 0; }
    PlacementScore Score(const Placement& placement, const RouteQuery&) const override {
      return {.cost = placement.route() == v1::ROUTE_UNIFIED ? 100.0 : 1.0};
    }
    Verdict Pick(std::span<const Option> options, const RouteQuery&) const override {
      EXPECT_LE(options.front().score.cost, options.back().score.cost);
      return {.option = options.size() - 1,
              .basis = RouteDecision::Basis::kWithinError,
              .reason = "it is the last"};
    }
  } policy;
  const auto decision = policy.Choose(ManyOfEach(4), {});
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->route, v1::ROUTE_UNIFIED);
  EXPECT_EQ(decision->prefill.name, "u03");
  EXPECT_EQ(decision->basis, RouteDecision::Basis::kWithinError);
  EXPECT_EQ(decision->reason, "it is the last");
  EXPECT_EQ(decision->placements, 20u);
  ASSERT_EQ(decision->considered.size(), RouteDecision::kMostConsidered);
  EXPECT_EQ(decision->considered.back().prefill.name, "u03") << "what is taken was considered";
}

TEST(PlacementTest, WithoutAPlacementTheStateOfEachRoleIsTold) {
  ScriptedPolicy policy;
  ClusterView view = ManyOfEach(1);
  view.workers[0].leaving = true;  // d00
  const auto none = policy.Choose(view, {.wanted = v1::ROUTE_DISAGGREGATED});
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("a prefill worker (ready) and a decode worker (not answering or leaving)"));
  EXPECT_THAT(policy.scored, IsEmpty());
  const auto tried = policy.Choose(view, {.wanted = v1::ROUTE_UNIFIED, .excluded = {{"u00", 1}}});
  EXPECT_THAT(std::string(tried.status().message()), HasSubstr("ready, but tried already"));
  ChangeInfo(view.workers[2], [](WorkerInfo& u00) { u00.max_context_tokens = 6; });
  const auto small = policy.Choose(view, {.wanted = v1::ROUTE_UNIFIED, .context_tokens = 7});
  EXPECT_THAT(std::string(small.status().message()),
              HasSubstr("ready, but with contexts of fewer than 7 tokens"));
}

TEST(PlacementTest, ADecisionSaysWhatItsCostWasComputedFrom) {
  ClusterView view = ManyOfEach(1);
  SetRunning(view.workers[0], 1);  // d00
  SetRunning(view.workers[1], 2);  // p00
  const auto split = NewLeastLoadedPolicy()->Choose(view, {.wanted = v1::ROUTE_DISAGGREGATED});
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(ToText(split->score), "cost=128 prefill_load=128 decode_load=64");
  EXPECT_EQ(ToText({.cost = 1.5, .unit = PlacementScore::Unit::kMilliseconds}), "cost_ms=1.5");
}

TEST(PlacementTest, ReadyWorkersComeBeforeStartingOnesAndTheseBeforeAvoidedOnes) {
  const TimePoint now{std::chrono::hours(1)};
  ClusterView view = ManyOfEach(3);
  const auto unified_left = [&view, now] {
    std::vector<std::string> names;
    const RouteQuery query{.wanted = v1::ROUTE_UNIFIED};
    for (const Candidate& one : FindCandidates(view, PreferReady(view, query, now)).unified) {
      names.push_back(one.worker->id.name);
    }
    return names;
  };
  view.workers[6].avoided_until = now + std::chrono::seconds(1);
  ChangeLoad(view.workers[7], [](v1::WorkerLoad& load) { load.set_starting(true); });
  EXPECT_THAT(unified_left(), UnorderedElementsAre("u02"));
  view.workers[8].suspected = true;
  EXPECT_THAT(unified_left(), UnorderedElementsAre("u01"));
  view.workers[7].suspected = true;
  EXPECT_THAT(unified_left(), UnorderedElementsAre("u00"));
}

// With more workers than are paired.
TEST(LeastLoadedTest, TheLeastLoadedOfEachRoleAreTakenHoweverManyThereAre) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    ClusterView view = ManyOfEach(40);
    std::map<v1::WorkerRole, int32_t> least;
    for (WorkerView& worker : view.workers) {
      const auto running = static_cast<int32_t>(random() % 1000);
      SetRunning(worker, running);
      const auto [at, added] = least.emplace(worker.role, running);
      if (!added) at->second = std::min(at->second, running);
    }
    const auto policy = NewLeastLoadedPolicy();
    const auto load = [&view](const WorkerId& id) { return view.Find(id)->load->running(); };
    const auto unified = policy->Choose(view, {.wanted = v1::ROUTE_UNIFIED});
    EXPECT_EQ(load(unified->prefill), least[v1::WORKER_ROLE_UNIFIED]);
    const auto split = policy->Choose(view, {.wanted = v1::ROUTE_DISAGGREGATED});
    EXPECT_EQ(load(split->prefill), least[v1::WORKER_ROLE_PREFILL]);
    EXPECT_EQ(load(split->decode), least[v1::WORKER_ROLE_DECODE]);
    const int32_t busier = std::max(least[v1::WORKER_ROLE_PREFILL], least[v1::WORKER_ROLE_DECODE]);
    EXPECT_EQ(policy->Choose(view, {})->route, least[v1::WORKER_ROLE_UNIFIED] <= busier
                                                   ? v1::ROUTE_UNIFIED
                                                   : v1::ROUTE_DISAGGREGATED);
  }
}

TEST(RoundRobinTest, EveryWorkerHasItsTurnHoweverManyThereAre) {
  const ClusterView view = ManyOfEach(40);
  const auto policy = NewRoundRobinPolicy();
  std::map<std::string, int> turns;
  for (int i = 0; i < 80; ++i) {
    const auto decision = policy->Choose(view, {});
    ++turns[decision->prefill.name];
    if (decision->route == v1::ROUTE_DISAGGREGATED) ++turns[decision->decode.name];
  }
  EXPECT_EQ(turns.size(), 120u);
  for (const auto& [name, count] : turns) EXPECT_EQ(count, 1) << name;
}

}  // namespace
}  // namespace tandem::placement_test
