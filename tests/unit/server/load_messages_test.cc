// What a worker's heartbeat says of its load, as the engine counts it.

#include <memory>

#include "gtest/gtest.h"
#include "server/services/worker_messages.h"

namespace tandem::load_messages_test {
namespace {

TEST(ToLoadTest, CarriesTheHandoffs) {
  EngineStats stats;
  stats.handoffs = 1;
  stats.reservations = 2;
  stats.waiting_reservations = 3;
  stats.draining_reservations = 9;
  stats.handoff_counts = {.sent = 4, .received = 5, .retried = 6, .lapsed = 7, .refused = 8};
  const v1::HandoffUse use = ToLoad(stats).handoffs();
  EXPECT_EQ(use.sending(), 1);
  EXPECT_EQ(use.reservations(), 2);
  EXPECT_EQ(use.waiting_reservations(), 3);
  EXPECT_EQ(use.draining_reservations(), 9);
  EXPECT_EQ(use.sent(), 4u);
  EXPECT_EQ(use.received(), 5u);
  EXPECT_EQ(use.retried(), 6u);
  EXPECT_EQ(use.lapsed(), 7u);
  EXPECT_EQ(use.refused(), 8u);
}

TEST(ToLoadTest, CarriesTheCostModelOnceThereIsOne) {
  EngineStats stats;
  stats.scheduler.decode_context_tokens = 700;
  stats.scheduler.expected_decode_tokens = 90;
  EXPECT_FALSE(ToLoad(stats).has_cost());
  StepCoefficients known;
  known.alpha = {.floor_ms = 1, .base_ms = 2, .token_ms = 0.5, .pair_ms = 0.25};
  known.beta = {.buckets = {{.max_sequences = 4, .base_ms = 3}},
                .sequence_ms = 0.125,
                .context_token_ms = 0.0625};
  stats.costs = {.model = std::make_shared<const StepModel>(*StepModel::Create(known)),
                 .source = CostSource::kMeasured,
                 .revision = 7,
                 .error = 0.1,
                 .drift = 1.5,
                 .steps = 42};
  const v1::WorkerLoad load = ToLoad(stats);
  EXPECT_EQ(load.decode_context_tokens(), 700);
  EXPECT_EQ(load.expected_decode_tokens(), 90);
  const v1::CostModel& cost = load.cost();
  EXPECT_EQ(cost.source(), v1::CostModel::SOURCE_MEASURED);
  EXPECT_EQ(cost.revision(), 7u);
  EXPECT_EQ(cost.error(), 0.1);
  EXPECT_EQ(cost.drift(), 1.5);
  EXPECT_EQ(cost.steps(), 42u);
  EXPECT_EQ(cost.alpha().token_ms(), 0.5);
  EXPECT_EQ(cost.beta().buckets(0).base_ms(), 3);
}

TEST(ToLoadTest, CarriesTheUseOfThePool) {
  EngineStats stats;
  stats.scheduler.running = 3;
  stats.scheduler.parked = 1;
  stats.scheduler.waiting = 5;
  stats.scheduler.prefilling = 2;
  stats.scheduler.swapped = 4;
  stats.scheduler.preempted_recompute = 6;
  stats.scheduler.preempted_swap = 7;
  stats.fragmentation = 0.25;
  stats.kv = {.total_blocks = 100,
              .free_blocks = 40,
              .cached_blocks = 30,
              .idle_blocks = 20,
              .shared_blocks = 10,
              .pinned_blocks = 5,
              .copied_blocks = 1,
              .evicted_blocks = 2,
              .hit_tokens = 300,
              .query_tokens = 400,
              .host_budget_bytes = 1000,
              .host_used_bytes = 500,
              .host_prefix_blocks = 8,
              .swapped_blocks = 9,
              .swapped_out_blocks = 11,
              .swapped_in_blocks = 12,
              .demoted_blocks = 13,
              .restored_blocks = 14};
  const v1::WorkerLoad load = ToLoad(stats);
  EXPECT_EQ(load.running(), 4);
  EXPECT_EQ(load.waiting(), 11) << "what was swapped out waits for room";
  EXPECT_EQ(load.total_blocks(), 100);
  EXPECT_EQ(load.free_blocks(), 40);
  const v1::KvUse& kv = load.kv();
  EXPECT_EQ(kv.cached_blocks(), 30);
  EXPECT_EQ(kv.idle_blocks(), 20);
  EXPECT_EQ(kv.shared_blocks(), 10);
  EXPECT_EQ(kv.pinned_blocks(), 5);
  EXPECT_EQ(kv.copied_blocks(), 1u);
  EXPECT_EQ(kv.evicted_blocks(), 2u);
  EXPECT_EQ(kv.hit_tokens(), 300u);
  EXPECT_EQ(kv.query_tokens(), 400u);
  EXPECT_EQ(kv.host_budget_bytes(), 1000u);
  EXPECT_EQ(kv.host_used_bytes(), 500u);
  EXPECT_EQ(kv.host_prefix_blocks(), 8);
  EXPECT_EQ(kv.swapped_blocks(), 9);
  EXPECT_EQ(kv.swapped(), 4);
  EXPECT_EQ(kv.swapped_out_blocks(), 11u);
  EXPECT_EQ(kv.swapped_in_blocks(), 12u);
  EXPECT_EQ(kv.demoted_blocks(), 13u);
  EXPECT_EQ(kv.restored_blocks(), 14u);
  EXPECT_EQ(kv.preempted_recompute(), 6u);
  EXPECT_EQ(kv.preempted_swap(), 7u);
  EXPECT_EQ(kv.fragmentation(), 0.25);
}

TEST(ToLoadTest, SaysHowMuchSmallerKvLiesOnTheHost) {
  EngineStats stats;
  stats.kv = {.host_raw_bytes = 150, .host_stored_bytes = 100, .host_unfit_blocks = 15};
  const v1::KvUse kv = ToLoad(stats).kv();
  EXPECT_EQ(kv.host_raw_bytes(), 150u);
  EXPECT_EQ(kv.host_stored_bytes(), 100u);
  EXPECT_EQ(kv.host_unfit_blocks(), 15u);
}

}  // namespace
}  // namespace tandem::load_messages_test
