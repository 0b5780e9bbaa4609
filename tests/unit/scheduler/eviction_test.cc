// The scheduler counts stored tokens: eviction shortens a sequence, a restart gives it its prompt
// back.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/scheduler.h"

namespace tandem::eviction_test {
namespace {

constexpr int32_t kBlockTokens = 16;
constexpr SchedulerOptions kOptions = {.max_step_tokens = 1024,
                                       .max_sequences = 8,
                                       .max_waiting = 8,
                                       .total_blocks = 40,
                                       .block_tokens = kBlockTokens};

// A pool with as many blocks as the test says, in which every sequence needs what the test says.
class FixedView final : public CacheView {
 public:
  int32_t AvailableBlocks() const override { return available; }
  int32_t BlocksToReach(SequenceId, int32_t) const override { return needed; }
  int32_t BlocksFreedBy(SequenceId) const override { return 1; }
  std::optional<int32_t> BlocksToSwapOut(SequenceId) const override { return std::nullopt; }
  int32_t BlocksToSwapIn(SequenceId) const override { return 0; }
  CachedPrefix Prefix(SequenceId) const override { return {}; }

  int32_t available = 1000;
  int32_t needed = 0;
};

class SchedulerEvictionTest : public testing::Test {
 protected:
  StepPlan Step() {
    StepPlan plan = scheduler_.Plan(TimePoint{}, view_);
    scheduler_.Advance(plan);
    EXPECT_EQ(scheduler_.CheckInvariants(), absl::OkStatus());
    return plan;
  }

  StepLearner latency_;
  Scheduler scheduler_{kOptions, latency_};
  FixedView view_;
};

TEST_F(SchedulerEvictionTest, ASequenceThatEvictedIsAsLongAsWhatItStores) {
  ASSERT_EQ(
      scheduler_.Enqueue(
          {.id = SequenceId(1), .prompt_tokens = 100, .max_total_tokens = 120, .kept_tokens = 60},
          TimePoint{}),
      absl::OkStatus());
  Step();
  EXPECT_EQ(scheduler_.stats().decode_context_tokens, 101);
  scheduler_.Evict(SequenceId(1), TokensOf::kPrompt, 60);
  EXPECT_EQ(scheduler_.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(scheduler_.stats().decode_context_tokens, 41);
  Step();
  EXPECT_EQ(scheduler_.stats().decode_context_tokens, 42);
}

TEST_F(SchedulerEvictionTest, ASequenceThatIsComputedAgainGetsItsPromptBack) {
  for (const uint64_t id : {1, 2}) {
    ASSERT_EQ(scheduler_.Enqueue({.id = SequenceId(id),
                                  .prompt_tokens = 100,
                                  .max_total_tokens = 120,
                                  .kept_tokens = 60},
                                 TimePoint{}),
              absl::OkStatus());
  }
  Step();
  for (const uint64_t id : {1, 2}) scheduler_.Evict(SequenceId(id), TokensOf::kPrompt, 60);
  Step();
  view_.available = 0;
  view_.needed = 1;
  const StepPlan pressed = scheduler_.Plan(TimePoint{}, view_);
  ASSERT_EQ(pressed.preempted.size(), 1u);
  EXPECT_EQ(pressed.preempted.front().id, SequenceId(2));
  EXPECT_EQ(scheduler_.CheckInvariants(), absl::OkStatus());

  view_.available = 1000;
  view_.needed = 0;
  const StepPlan again = Step();
  ASSERT_EQ(again.prefills.size(), 1u);
  EXPECT_EQ(again.prefills.front().begin, 0);
  EXPECT_EQ(again.prefills.front().count, 102) << "the whole prompt and two tokens of output";
  scheduler_.Evict(SequenceId(2), TokensOf::kPrompt, 60);
  EXPECT_EQ(scheduler_.CheckInvariants(), absl::OkStatus());
}

TEST_F(SchedulerEvictionTest, EvictedOutputShortensASequenceUntilItIsComputedAgain) {
  for (const uint64_t id : {1, 2}) {
    ASSERT_EQ(scheduler_.Enqueue({.id = SequenceId(id),
                                  .prompt_tokens = 100,
                                  .max_total_tokens = 160,
                                  .kept_tokens = 100},
                                 TimePoint{}),
              absl::OkStatus());
  }
  Step();
  for (const uint64_t id : {1, 2}) scheduler_.Evict(SequenceId(id), TokensOf::kPrompt, 60);
  for (int i = 0; i < 20; ++i) Step();
  const int64_t expected = scheduler_.stats().expected_decode_tokens;
  EXPECT_EQ(scheduler_.stats().decode_context_tokens, 2 * 61);
  for (const uint64_t id : {1, 2}) scheduler_.Evict(SequenceId(id), TokensOf::kOutput, 16);
  EXPECT_EQ(scheduler_.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(scheduler_.stats().decode_context_tokens, 2 * 45);
  EXPECT_EQ(scheduler_.stats().expected_decode_tokens, expected)
      << "what was decoded stays decoded";
  Step();
  view_.available = 0;
  view_.needed = 1;
  const StepPlan pressed = scheduler_.Plan(TimePoint{}, view_);
  ASSERT_EQ(pressed.preempted.size(), 1u);
  EXPECT_EQ(scheduler_.CheckInvariants(), absl::OkStatus());
  view_.available = 1000;
  view_.needed = 0;
  const StepPlan again = Step();
  ASSERT_EQ(again.prefills.size(), 1u);
  EXPECT_EQ(again.prefills.front().count, 122) << "the whole prompt and all of its output";
}

// 7 blocks of the prompt and 20 of the output each: two fit into 40 blocks where a third of the
// output stays.
TEST_F(SchedulerEvictionTest, OutputThatIsEvictedIsNotWaitedFor) {
  for (const double share : {1.0, 1.0 / 3}) {
    SCOPED_TRACE(share);
    Scheduler scheduler(kOptions, latency_);
    view_.available = 40;
    view_.needed = 7;
    for (const uint64_t id : {1, 2}) {
      ASSERT_EQ(scheduler.Enqueue({.id = SequenceId(id),
                                   .prompt_tokens = 100,
                                   .max_total_tokens = 420,
                                   .output_share = share},
                                  TimePoint{}),
                absl::OkStatus());
    }
    EXPECT_EQ(scheduler.Plan(TimePoint{}, view_).admitted.size(), share < 1 ? 2u : 1u);
  }
}

// 38 blocks for 600 tokens; what stays needs blocks beside them, and so does a prompt whose KV was
// evicted elsewhere but may have to be computed here.
TEST_F(SchedulerEvictionTest, ASequenceMustFitWithAllOfItsPromptAndWhatItKeeps) {
  EXPECT_EQ(
      scheduler_.CheckFits({.id = SequenceId(1), .prompt_tokens = 600, .max_total_tokens = 600}),
      absl::OkStatus());
  EXPECT_EQ(
      scheduler_.CheckFits(
          {.id = SequenceId(1), .prompt_tokens = 600, .max_total_tokens = 600, .kept_tokens = 32}),
      absl::OkStatus());
  EXPECT_EQ(scheduler_
                .CheckFits({.id = SequenceId(1),
                            .prompt_tokens = 600,
                            .max_total_tokens = 600,
                            .kept_tokens = 33})
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler_
                .CheckFits({.id = SequenceId(1),
                            .prompt_tokens = 100,
                            .max_total_tokens = 100,
                            .evicted_tokens = 500,
                            .kept_tokens = 100})
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::eviction_test
