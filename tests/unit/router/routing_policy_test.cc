#include "router/policy/routing_policy.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/policy/policies.h"
#include "tests/support/fake_clock.h"
#include "tests/support/measured_workers.h"

namespace tandem::routing_policy_test {
namespace {

using ::testing::HasSubstr;

WorkerView Worker(const std::string& name, v1::WorkerRole role, int32_t running = 0) {
  WorkerView worker = MeasuredWorker(name, role);
  SetRunning(worker, running);
  return worker;
}

void SetDtype(WorkerView& worker, const std::string& dtype) {
  ChangeInfo(worker, [&dtype](WorkerInfo& info) { info.layout.set_dtype(dtype); });
}

ClusterView TwoOfEach() {
  ClusterView view{
      .workers = {Worker("d0", v1::WORKER_ROLE_DECODE), Worker("d1", v1::WORKER_ROLE_DECODE),
                  Worker("p0", v1::WORKER_ROLE_PREFILL), Worker("p1", v1::WORKER_ROLE_PREFILL),
                  Worker("u0", v1::WORKER_ROLE_UNIFIED), Worker("u1", v1::WORKER_ROLE_UNIFIED)}};
  for (const size_t prefill : {2, 3}) {
    SetLink(view.workers[prefill], "d0", 1);
    SetLink(view.workers[prefill], "d1", 1);
  }
  return view;
}

v1::WorkerRole RoleOf(const ClusterView& view, const WorkerId& id) {
  const WorkerView* const worker = view.Find(id);
  return worker == nullptr ? v1::WORKER_ROLE_UNSPECIFIED : worker->role;
}

PolicyOptions Options() {
  return {.classic = ClassicCoefficients{.alpha_ms = 0.1,
                                         .beta_ms = 10,
                                         .gamma_ms = 0.1,
                                         .batch_thresh = 16,
                                         .bandwidth_gb_per_s = 1}};
}

// The promises that every policy keeps.
class AnyPolicyTest : public testing::TestWithParam<std::string> {
 protected:
  FakeClock clock_;
  RequestLedger ledger_{clock_};
  std::unique_ptr<RoutingPolicy> policy_ =
      *NewRoutingPolicy(GetParam(), {.clock = clock_, .ledger = ledger_, .options = Options()});
};

TEST_P(AnyPolicyTest, TakesTheRouteAskedFor) {
  const ClusterView view = TwoOfEach();
  for (int i = 0; i < 8; ++i) {
    const auto unified = policy_->Choose(view, {.wanted = v1::ROUTE_UNIFIED});
    ASSERT_TRUE(unified.ok());
    EXPECT_EQ(unified->route, v1::ROUTE_UNIFIED);
    EXPECT_EQ(RoleOf(view, unified->prefill), v1::WORKER_ROLE_UNIFIED);
    const auto split = policy_->Choose(view, {.wanted = v1::ROUTE_DISAGGREGATED});
    ASSERT_TRUE(split.ok());
    EXPECT_EQ(split->route, v1::ROUTE_DISAGGREGATED);
    EXPECT_EQ(RoleOf(view, split->prefill), v1::WORKER_ROLE_PREFILL);
    EXPECT_EQ(RoleOf(view, split->decode), v1::WORKER_ROLE_DECODE);
  }
}

TEST_P(AnyPolicyTest, IdleWorkersThatAreAlikeTakeTurns) {
  const ClusterView view = TwoOfEach();
  std::map<std::string, int> taken;
  for (int i = 0; i < 8; ++i) {
    ++taken[policy_->Choose(view, {.wanted = v1::ROUTE_UNIFIED})->prefill.name];
  }
  for (int i = 0; i < 8; ++i) {
    const auto split = policy_->Choose(view, {.wanted = v1::ROUTE_DISAGGREGATED});
    ++taken[split->prefill.name];
    ++taken[split->decode.name];
  }
  for (const char* const name : {"d0", "d1", "p0", "p1", "u0", "u1"}) EXPECT_EQ(taken[name], 4);
}

TEST_P(AnyPolicyTest, AutoTakesTheRouteThatIsPossible) {
  ClusterView view{.workers = {Worker("u0", v1::WORKER_ROLE_UNIFIED)}};
  EXPECT_EQ(policy_->Choose(view, {})->route, v1::ROUTE_UNIFIED);
  view.workers = {Worker("d0", v1::WORKER_ROLE_DECODE), Worker("p0", v1::WORKER_ROLE_PREFILL)};
  EXPECT_EQ(policy_->Choose(view, {})->route, v1::ROUTE_DISAGGREGATED);
}

TEST_P(AnyPolicyTest, SaysWhatIsMissing) {
  const ClusterView view{.workers = {Worker("p0", v1::WORKER_ROLE_PREFILL)}};
  const auto split = policy_->Choose(view, {.wanted = v1::ROUTE_DISAGGREGATED});
  EXPECT_TRUE(absl::IsUnavailable(split.status()));
  EXPECT_THAT(std::string(split.status().message()), HasSubstr("decode worker (none registered)"));
  EXPECT_TRUE(absl::IsUnavailable(policy_->Choose(view, {}).status()));
  EXPECT_TRUE(absl::IsUnavailable(policy_->Choose({}, {.wanted = v1::ROUTE_UNIFIED}).status()));
}

TEST_P(AnyPolicyTest, NeverTakesASuspectedOrTriedWorker) {
  ClusterView view = TwoOfEach();
  view.workers[0].suspected = true;  // d0
  const RouteQuery query{.wanted = v1::ROUTE_DISAGGREGATED, .excluded = {{"p1", 1}}};
  for (int i = 0; i < 8; ++i) {
    const auto decision = policy_->Choose(view, query);
    ASSERT_TRUE(decision.ok());
    EXPECT_EQ(decision->decode.name, "d1");
    EXPECT_EQ(decision->prefill.name, "p0");
  }
}

TEST_P(AnyPolicyTest, TheWorkerThatHasThePromptPrefillsAgain) {
  ClusterView view = TwoOfEach();
  SetRunning(view.workers[3], 50);  // p1: busy as it is
  for (int i = 0; i < 4; ++i) {
    for (const v1::Route wanted : {v1::ROUTE_AUTO, v1::ROUTE_DISAGGREGATED}) {
      const auto decision = policy_->Choose(view, {.wanted = wanted, .prompt_at = {{"p1", 1}}});
      ASSERT_TRUE(decision.ok());
      EXPECT_EQ(decision->route, v1::ROUTE_DISAGGREGATED);
      EXPECT_EQ(decision->prefill.name, "p1");
    }
  }
  EXPECT_EQ(policy_->Choose(view, {.wanted = v1::ROUTE_UNIFIED, .prompt_at = {{"p1", 1}}})->route,
            v1::ROUTE_UNIFIED);
  const auto without = policy_->Choose(
      view, {.wanted = v1::ROUTE_DISAGGREGATED, .excluded = {{"p1", 1}}, .prompt_at = {{"p1", 1}}});
  EXPECT_EQ(without->prefill.name, "p0") << "it was asked in vain";
  view.workers[3].id.incarnation = 2;
  view.workers[2].suspected = true;
  EXPECT_EQ(policy_
                ->Choose(view, {.wanted = v1::ROUTE_AUTO,
                                .excluded = {{"d0", 1}, {"d1", 1}},
                                .prompt_at = {{"p1", 1}}})
                ->route,
            v1::ROUTE_UNIFIED)
      << "no worker can decode";
}

TEST_P(AnyPolicyTest, TakesOnlyWorkersThatContinueTheEmittedTokens) {
  ClusterView view = TwoOfEach();
  for (WorkerView& worker : view.workers) {
    SetDtype(worker, worker.role == v1::WORKER_ROLE_DECODE ? "f32" : "bf16");
  }
  ChangeInfo(view.workers[0], [](WorkerInfo& d0) { d0.model_fingerprint = 7; });
  SetDtype(view.workers[2], "f8e4m3");  // p0
  const Numerics prompt{.model_fingerprint = 0, .kv_dtype = "bf16", .device_kind = ""};
  const Numerics output{.model_fingerprint = 0, .kv_dtype = "f32", .device_kind = ""};
  for (int i = 0; i < 8; ++i) {
    const auto split = policy_->Choose(view, {.begun = Begun{prompt, output}});
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_EQ(split->route, v1::ROUTE_DISAGGREGATED) << "no unified worker is like both";
    EXPECT_EQ(split->prefill.name, "p1");
    EXPECT_EQ(split->decode.name, "d1");
    EXPECT_EQ(policy_->Choose(view, {.begun = Begun{prompt, prompt}})->route, v1::ROUTE_UNIFIED);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AnyPolicyTest, testing::ValuesIn(RoutingPolicyNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(LeastLoadedTest, AmongEquallyBusyWorkersTheOneWithMoreRoomIsTaken) {
  ClusterView view = TwoOfEach();
  ChangeLoad(view.workers[5], [](v1::WorkerLoad& full_of_cached) {
    full_of_cached.set_free_blocks(2);
    full_of_cached.mutable_kv()->set_idle_blocks(60);
  });
  ChangeLoad(view.workers[4], [](v1::WorkerLoad& load) { load.set_free_blocks(30); });
  const auto decision = NewLeastLoadedPolicy()->Choose(view, {.wanted = v1::ROUTE_UNIFIED});
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->prefill.name, "u1") << "idle cached blocks are room, too";
}

TEST(LeastLoadedTest, TakesTheIdleWorkerOfEachRole) {
  const ClusterView view{.workers = {Worker("d0", v1::WORKER_ROLE_DECODE, 3),
                                     Worker("d1", v1::WORKER_ROLE_DECODE, 1),
                                     Worker("p0", v1::WORKER_ROLE_PREFILL, 0),
                                     Worker("p1", v1::WORKER_ROLE_PREFILL, 2)}};
  const auto decision = NewLeastLoadedPolicy()->Choose(view, {});
  EXPECT_EQ(decision->prefill.name, "p0");
  EXPECT_EQ(decision->decode.name, "d1");
}

TEST(LeastLoadedTest, AutoComparesTheBusierEnd) {
  ClusterView view{.workers = {Worker("d0", v1::WORKER_ROLE_DECODE, 1),
                               Worker("p0", v1::WORKER_ROLE_PREFILL, 0),
                               Worker("u0", v1::WORKER_ROLE_UNIFIED, 1)}};
  EXPECT_EQ(NewLeastLoadedPolicy()->Choose(view, {})->route, v1::ROUTE_UNIFIED);  // a tie
  SetRunning(view.workers[2], 2);
  EXPECT_EQ(NewLeastLoadedPolicy()->Choose(view, {})->route, v1::ROUTE_DISAGGREGATED);
  view.workers[1].charged.prompt_tokens = 2000;  // a long prompt waits at p0
  EXPECT_EQ(NewLeastLoadedPolicy()->Choose(view, {})->route, v1::ROUTE_UNIFIED);
}

TEST(RoundRobinTest, EveryWorkerHasItsTurn) {
  const ClusterView view = TwoOfEach();
  const auto policy = NewRoundRobinPolicy();
  std::map<std::string, int> turns;
  for (int i = 0; i < 8; ++i) {
    const auto decision = policy->Choose(view, {});
    ++turns[decision->prefill.name];
    if (decision->route == v1::ROUTE_DISAGGREGATED) ++turns[decision->decode.name];
  }
  for (const char* name : {"p0", "p1", "d0", "d1", "u0", "u1"}) EXPECT_EQ(turns[name], 2) << name;
}

TEST(RoutingPolicyTest, UnknownNamesAreRefusedWithTheList) {
  const FakeClock clock;
  const RequestLedger ledger(clock);
  const auto policy = NewRoutingPolicy("magic", {.clock = clock, .ledger = ledger});
  EXPECT_TRUE(absl::IsNotFound(policy.status()));
  EXPECT_THAT(std::string(policy.status().message()),
              HasSubstr("auto, least-loaded, prefix-affinity, round-robin"));
}

}  // namespace
}  // namespace tandem::routing_policy_test
