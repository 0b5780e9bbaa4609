#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/policy/policies.h"
#include "tests/support/fake_clock.h"
#include "tests/support/worker_views.h"

namespace tandem::classic_policy_test {
namespace {

using ::testing::HasSubstr;

// Disaggregation begins to win at 2.1 sequences with these and the KV of Qwen3-8B.
constexpr ClassicCoefficients kWithoutKvSize = {.alpha_ms = 0.124722,
                                                .beta_ms = 51.5604,
                                                .gamma_ms = 0.0869146,
                                                .batch_thresh = 16,
                                                .bandwidth_gb_per_s = 12.896};

WorkerView Worker(const std::string& name, v1::WorkerRole role, int32_t running = 0) {
  WorkerView worker = MakeWorker(name, role);
  SetRunning(worker, running);
  ChangeInfo(worker, [](WorkerInfo& info) {
    info.layout.set_num_layers(36);
    info.layout.set_num_kv_heads(8);
    info.layout.set_head_dim(128);
    info.layout.set_dtype("bf16");
  });
  return worker;
}

ClusterView OneOfEach(int32_t unified, int32_t decoding) {
  return {.workers = {Worker("d0", v1::WORKER_ROLE_DECODE, decoding),
                      Worker("p0", v1::WORKER_ROLE_PREFILL),
                      Worker("u0", v1::WORKER_ROLE_UNIFIED, unified)}};
}

RouteQuery Query(double output_tokens = 200) {
  RouteQuery query;
  query.prompt_tokens = 512;
  query.expected_output_tokens = output_tokens;
  return query;
}

class ClassicPolicyTest : public testing::Test {
 protected:
  v1::Route RouteAt(int32_t unified, int32_t decoding) {
    const auto decision = policy_->Choose(OneOfEach(unified, decoding), Query());
    EXPECT_TRUE(decision.ok()) << decision.status();
    return decision->route;
  }

  const std::unique_ptr<RoutingPolicy> policy_ = NewClassicPolicy(kWithoutKvSize);
};

TEST_F(ClassicPolicyTest, DisaggregatesFromTheBreakEvenLoadOfTheSystemOn) {
  EXPECT_EQ(RouteAt(0, 0), v1::ROUTE_UNIFIED);
  EXPECT_EQ(RouteAt(2, 0), v1::ROUTE_UNIFIED);
  EXPECT_EQ(RouteAt(1, 1), v1::ROUTE_UNIFIED);
  EXPECT_EQ(RouteAt(3, 0), v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(RouteAt(1, 2), v1::ROUTE_DISAGGREGATED) << "the decode worker's load counts as well";
}

TEST_F(ClassicPolicyTest, CostsAreTheFormulas) {
  const auto decision = policy_->Choose(OneOfEach(4, 0), Query());
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->route, v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(decision->score.unit, PlacementScore::Unit::kMilliseconds);
  EXPECT_EQ(std::round(decision->score.cost), 10382);
  EXPECT_THAT(ToText(decision->score), HasSubstr("output_tokens=200 decode_batch=0"));
}

TEST_F(ClassicPolicyTest, AFullDecodeWorkerIsLeftOutWhereAUnifiedOneIs) {
  EXPECT_EQ(RouteAt(30, 19), v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(RouteAt(30, 20), v1::ROUTE_UNIFIED);
  ClusterView view = OneOfEach(0, 20);
  view.workers.pop_back();
  const auto decision = policy_->Choose(view, Query());
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->route, v1::ROUTE_DISAGGREGATED) << "nothing else is there";
  RouteQuery again = Query();
  again.prompt_at = WorkerId{"p0", 1};
  EXPECT_TRUE(policy_->Choose(OneOfEach(0, 20), again).ok()) << "its prompt is at p0";
}

TEST_F(ClassicPolicyTest, AmongWorkersOfOneRoleItTakesTheLeastLoaded) {
  ClusterView view = OneOfEach(9, 9);
  view.workers.insert(view.workers.begin() + 1, Worker("d1", v1::WORKER_ROLE_DECODE, 3));
  const auto decision = policy_->Choose(view, Query());
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->decode.name, "d1");
}

TEST(NewClassicPolicyTest, IsNotMadeWithoutItsScalars) {
  const FakeClock clock;
  const RequestLedger ledger(clock);
  const absl::Status status =
      NewRoutingPolicy("classic", {.clock = clock, .ledger = ledger}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--classic-parameters"));
}

}  // namespace
}  // namespace tandem::classic_policy_test
