#include "scheduler/scheduler.h"

#include <chrono>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SequenceId Id(uint64_t value) { return SequenceId(value); }

SchedulerOptions Options() {
  return {.max_step_tokens = 1024,
          .max_sequences = 64,
          .max_waiting = 1000,
          .total_blocks = 4096,
          .block_tokens = 16};
}

class SchedulerTest : public ::testing::Test {
 protected:
  void Rebuild(const SchedulerOptions& options) {
    scheduler_ = std::make_unique<Scheduler>(options);
  }

  absl::Status Enqueue(uint64_t id, int32_t prompt, int32_t priority = 0) {
    return scheduler_->Enqueue({.id = Id(id),
                                .prompt_tokens = prompt,
                                .max_total_tokens = prompt + 16,
                                .priority = priority});
  }

  StepPlan Step() {
    const StepPlan plan = scheduler_->Plan(now_);
    scheduler_->Advance(plan);
    EXPECT_EQ(scheduler_->CheckInvariants(), absl::OkStatus());
    return plan;
  }

  // Enqueues and prefills `count` sequences from `first` on.
  void MakeRunning(uint64_t first, int count) {
    for (int i = 0; i < count; ++i) ASSERT_EQ(Enqueue(first + i, 1), absl::OkStatus());
    while (scheduler_->stats().waiting + scheduler_->stats().prefilling > 0) Step();
  }

  TimePoint now_ = TimePoint(seconds(1000));
  std::unique_ptr<Scheduler> scheduler_ = std::make_unique<Scheduler>(Options());
};

std::vector<uint64_t> Ids(const std::vector<PrefillChunk>& chunks) {
  std::vector<uint64_t> ids;
  for (const PrefillChunk& chunk : chunks) ids.push_back(chunk.id.value());
  return ids;
}

TEST_F(SchedulerTest, TenPromptsOfSixtyFourFitOneStep) {
  for (uint64_t id = 1; id <= 10; ++id) ASSERT_EQ(Enqueue(id, 64), absl::OkStatus());
  const StepPlan plan = Step();
  ASSERT_EQ(plan.prefills.size(), 10u);
  EXPECT_EQ(plan.admitted.size(), 10u);
  for (const PrefillChunk& chunk : plan.prefills) {
    EXPECT_EQ(chunk.begin, 0);
    EXPECT_EQ(chunk.count, 64);
    EXPECT_TRUE(chunk.last);
  }
  EXPECT_EQ(Step().decodes.size(), 10u);
}

TEST_F(SchedulerTest, LongPromptIsCutIntoChunksThatTileIt) {
  ASSERT_EQ(Enqueue(1, 2500), absl::OkStatus());
  std::vector<int32_t> counts;
  int32_t computed = 0;
  for (bool last = false; !last;) {
    const StepPlan plan = Step();
    ASSERT_EQ(plan.prefills.size(), 1u);
    EXPECT_EQ(plan.prefills[0].begin, computed);
    computed += plan.prefills[0].count;
    counts.push_back(plan.prefills[0].count);
    last = plan.prefills[0].last;
  }
  EXPECT_THAT(counts, ElementsAre(1024, 1024, 452));
}

TEST_F(SchedulerTest, ChunkLimitLeavesBudgetToOthers) {
  SchedulerOptions options = Options();
  options.max_prefill_chunk = 100;
  Rebuild(options);
  ASSERT_EQ(Enqueue(1, 500), absl::OkStatus());
  ASSERT_EQ(Enqueue(2, 130), absl::OkStatus());
  StepPlan plan = Step();
  ASSERT_EQ(plan.prefills.size(), 2u);
  EXPECT_EQ(plan.prefills[0].count, 100);
  EXPECT_EQ(plan.prefills[1].count, 100);
  plan = Step();
  EXPECT_EQ(plan.prefills[1].count, 30);
  EXPECT_TRUE(plan.prefills[1].last);
}

TEST_F(SchedulerTest, RunningSequencesDecodeBesidePrefill) {
  MakeRunning(1, 5);
  ASSERT_EQ(Enqueue(100, 5000), absl::OkStatus());
  for (int step = 0; step < 4; ++step) {
    const StepPlan plan = Step();
    EXPECT_EQ(plan.decodes.size(), 5u);
    ASSERT_EQ(plan.prefills.size(), 1u);
    EXPECT_EQ(plan.prefills[0].count, 1024 - 5);
  }
}

TEST_F(SchedulerTest, APlanThatWasNotExecutedIsMadeAgain) {
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());
  const StepPlan first = scheduler_->Plan(now_);
  const StepPlan again = scheduler_->Plan(now_);
  ASSERT_EQ(again.prefills.size(), 1u);
  EXPECT_EQ(again.prefills[0].begin, first.prefills[0].begin);
  EXPECT_EQ(again.prefills[0].count, first.prefills[0].count);
  EXPECT_THAT(again.admitted, IsEmpty());
}

TEST_F(SchedulerTest, HigherPriorityGoesFirstThenArrival) {
  SchedulerOptions options = Options();
  options.max_step_tokens = 64;
  Rebuild(options);
  ASSERT_EQ(Enqueue(1, 64, 0), absl::OkStatus());
  ASSERT_EQ(Enqueue(2, 64, 0), absl::OkStatus());
  ASSERT_EQ(Enqueue(3, 64, 5), absl::OkStatus());
  EXPECT_THAT(Ids(scheduler_->Plan(now_).prefills), ElementsAre(3));
  scheduler_->Finish(Id(3));
  EXPECT_THAT(Ids(scheduler_->Plan(now_).prefills), ElementsAre(1));
  scheduler_->Finish(Id(1));
  EXPECT_THAT(Ids(scheduler_->Plan(now_).prefills), ElementsAre(2));
}

TEST_F(SchedulerTest, HigherPriorityTakesTheBudgetOfAPrefillUnderWay) {
  ASSERT_EQ(Enqueue(1, 5000, 0), absl::OkStatus());
  Step();
  ASSERT_EQ(Enqueue(2, 1000, 1), absl::OkStatus());
  const StepPlan plan = Step();
  ASSERT_THAT(Ids(plan.prefills), ElementsAre(2, 1));
  EXPECT_EQ(plan.prefills[1].begin, 1024);
  EXPECT_EQ(plan.prefills[1].count, 24);
}

TEST_F(SchedulerTest, HeadOfTheQueueIsNotOvertaken) {
  SchedulerOptions options = Options();
  options.total_blocks = 10;  // 160 tokens
  Rebuild(options);
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());   // 5 blocks
  ASSERT_EQ(Enqueue(2, 100), absl::OkStatus());  // 8 blocks: no room beside 1
  ASSERT_EQ(Enqueue(3, 10), absl::OkStatus());   // 2 blocks: would fit
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1));
  EXPECT_THAT(Step().prefills, IsEmpty());
  scheduler_->Finish(Id(1));
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(2, 3));
}

TEST_F(SchedulerTest, ReservationLeavesTheHeadItsClaim) {
  SchedulerOptions options = Options();
  options.total_blocks = 10;
  Rebuild(options);
  ASSERT_EQ(Enqueue(1, 100), absl::OkStatus());                                          // 8 blocks
  const SequenceSpec spec = {.id = Id(2), .prompt_tokens = 40, .max_total_tokens = 48};  // 3
  EXPECT_EQ(scheduler_->Reserve(spec).code(), absl::StatusCode::kResourceExhausted);
  SequenceSpec urgent = spec;
  urgent.priority = 1;
  EXPECT_EQ(scheduler_->Reserve(urgent), absl::OkStatus());
  EXPECT_THAT(Step().prefills, IsEmpty());
  scheduler_->Finish(Id(2));
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1));
}

TEST_F(SchedulerTest, ReservedSequenceDecodesOnceActivated) {
  ASSERT_EQ(scheduler_->Reserve({.id = Id(1), .prompt_tokens = 100, .max_total_tokens = 200}),
            absl::OkStatus());
  EXPECT_EQ(scheduler_->stats().parked, 1);
  EXPECT_EQ(scheduler_->stats().promised_blocks, 13);
  EXPECT_FALSE(scheduler_->HasWork());
  EXPECT_TRUE(Step().empty());
  scheduler_->Activate(Id(1));
  EXPECT_TRUE(scheduler_->HasWork());
  EXPECT_THAT(Step().decodes, ElementsAre(Id(1)));
  scheduler_->Finish(Id(1));
  EXPECT_EQ(scheduler_->stats().promised_blocks, 0);
}

TEST_F(SchedulerTest, APromiseIsPassedOnPastTheQueue) {
  SchedulerOptions options = Options();
  options.total_blocks = 10;
  Rebuild(options);
  SequenceSpec spec = {.id = Id(1), .prompt_tokens = 40, .max_total_tokens = 48};  // 3 blocks
  ASSERT_EQ(scheduler_->Reserve(spec), absl::OkStatus());
  ASSERT_EQ(Enqueue(5, 130), absl::OkStatus());  // 10 blocks: would take what Finish gives back
  spec.id = Id(2);
  spec.max_total_tokens = 45;
  scheduler_->PassOn(Id(1), spec);
  EXPECT_FALSE(scheduler_->Contains(Id(1)));
  EXPECT_EQ(scheduler_->stats().promised_blocks, 3);
  scheduler_->Activate(Id(2));
  EXPECT_THAT(Step().decodes, ElementsAre(Id(2)));
}

TEST_F(SchedulerTest, ParkedSequenceKeepsItsPromiseAndDoesNotRun) {
  MakeRunning(1, 2);
  const int32_t promised = scheduler_->stats().promised_blocks;
  scheduler_->Park(Id(1));
  EXPECT_THAT(Step().decodes, ElementsAre(Id(2)));
  EXPECT_EQ(scheduler_->stats().promised_blocks, promised);
  scheduler_->Finish(Id(1));
  EXPECT_EQ(scheduler_->stats().promised_blocks, promised - 2);
}

TEST_F(SchedulerTest, ParkedSequencesCountAgainstTheLimit) {
  SchedulerOptions options = Options();
  options.max_sequences = 2;
  Rebuild(options);
  const auto reserve = [&](uint64_t id) {
    return scheduler_->Reserve({.id = Id(id), .prompt_tokens = 1, .max_total_tokens = 2});
  };
  EXPECT_EQ(reserve(1), absl::OkStatus());
  EXPECT_EQ(reserve(2), absl::OkStatus());
  EXPECT_EQ(reserve(3).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(Enqueue(4, 10), absl::OkStatus());
  EXPECT_TRUE(Step().empty());
  EXPECT_FALSE(scheduler_->HasWork());
}

TEST_F(SchedulerTest, PassedDeadlinesLeaveInWhateverPhase) {
  MakeRunning(1, 1);
  const auto spec = [&](uint64_t id, int after) {
    return SequenceSpec{.id = Id(id),
                        .prompt_tokens = 2000,
                        .max_total_tokens = 2100,
                        .deadline = now_ + seconds(after)};
  };
  ASSERT_EQ(scheduler_->Enqueue(spec(10, 5)), absl::OkStatus());
  ASSERT_EQ(scheduler_->Enqueue(spec(11, 3)), absl::OkStatus());
  ASSERT_EQ(scheduler_->Reserve(spec(12, 4)), absl::OkStatus());
  EXPECT_EQ(scheduler_->NextDeadline(), now_ + seconds(3));
  EXPECT_THAT(Step().expired, IsEmpty());
  now_ += seconds(4);
  EXPECT_THAT(Step().expired, ElementsAre(Id(11), Id(12))) << "a deadline that is now has passed";
  EXPECT_FALSE(scheduler_->Contains(Id(11)));
  EXPECT_EQ(scheduler_->NextDeadline(), now_ + seconds(1));
  now_ += seconds(1);
  const StepPlan plan = Step();
  EXPECT_THAT(plan.expired, ElementsAre(Id(10)));
  EXPECT_THAT(plan.decodes, ElementsAre(Id(1)));
  EXPECT_EQ(scheduler_->NextDeadline(), kNoDeadline);
  EXPECT_EQ(scheduler_->stats().waiting_prompt_tokens, 0);
}

TEST_F(SchedulerTest, MoreRunningThanBudgetTakeTurns) {
  SchedulerOptions options = Options();
  options.max_step_tokens = 3;
  Rebuild(options);
  for (uint64_t id = 1; id <= 7; ++id) {
    ASSERT_EQ(scheduler_->Reserve({.id = Id(id), .prompt_tokens = 1, .max_total_tokens = 9}),
              absl::OkStatus());
    scheduler_->Activate(Id(id));
  }
  std::vector<int> turns(8, 0);
  for (int step = 0; step < 7; ++step) {
    const StepPlan plan = Step();
    ASSERT_EQ(plan.decodes.size(), 3u);
    for (SequenceId id : plan.decodes) ++turns[id.value()];
  }
  EXPECT_THAT(turns, ElementsAre(0, 3, 3, 3, 3, 3, 3, 3));
}

TEST_F(SchedulerTest, FinishDuringTheStepIsSkippedByAdvance) {
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());
  ASSERT_EQ(Enqueue(2, 64), absl::OkStatus());
  const StepPlan plan = scheduler_->Plan(now_);
  scheduler_->Finish(Id(1));
  scheduler_->Finish(Id(99));
  scheduler_->Advance(plan);
  EXPECT_EQ(scheduler_->CheckInvariants(), absl::OkStatus());
  EXPECT_THAT(Step().decodes, ElementsAre(Id(2)));
}

TEST_F(SchedulerTest, RefusesWhatCanNeverFitWithTheNumbers) {
  const absl::Status status =
      scheduler_->Enqueue({.id = Id(1), .prompt_tokens = 60000, .max_total_tokens = 70000});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("4375"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("4096"));
  EXPECT_EQ(scheduler_->Enqueue({.id = Id(1), .prompt_tokens = 0, .max_total_tokens = 5}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler_->Reserve({.id = Id(1), .prompt_tokens = 6, .max_total_tokens = 5}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(scheduler_->Contains(Id(1)));
}

TEST_F(SchedulerTest, FullQueueIsAnsweredNotAbsorbed) {
  SchedulerOptions options = Options();
  options.max_waiting = 2;
  Rebuild(options);
  EXPECT_EQ(Enqueue(1, 10), absl::OkStatus());
  EXPECT_EQ(Enqueue(2, 10), absl::OkStatus());
  EXPECT_EQ(Enqueue(3, 10).code(), absl::StatusCode::kResourceExhausted);
  Step();
  EXPECT_EQ(Enqueue(3, 10), absl::OkStatus());
}

TEST(SchedulerOptionsTest, EachFieldIsChecked) {
  EXPECT_EQ(Options().Validate(), absl::OkStatus());
  const auto refused = [](auto change, const char* field) {
    SchedulerOptions options = Options();
    change(options);
    const absl::Status status = options.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  };
  refused([](auto& o) { o.max_step_tokens = 0; }, "max_step_tokens=0");
  refused([](auto& o) { o.max_prefill_chunk = -1; }, "max_prefill_chunk=-1");
  refused([](auto& o) { o.max_sequences = 0; }, "max_sequences=0");
  refused([](auto& o) { o.max_waiting = 0; }, "max_waiting=0");
  refused([](auto& o) { o.total_blocks = 0; }, "total_blocks=0");
  refused([](auto& o) { o.block_tokens = 0; }, "block_tokens=0");
}

}  // namespace
}  // namespace tandem
