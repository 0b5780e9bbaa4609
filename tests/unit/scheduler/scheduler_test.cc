#include "scheduler/scheduler.h"

#include <chrono>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/scheduler_fixture.h"

namespace tandem::scheduler_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using SchedulerTest = SchedulerFixture;

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
  Rebuild([](SchedulerOptions& options) { options.max_prefill_chunk = 100; });
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

TEST_F(SchedulerTest, AStepThatWasNotComputedIsFollowedByAnother) {
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());
  const StepPlan first = engine_->Plan();
  const StepPlan again = engine_->Plan();
  ASSERT_EQ(again.prefills.size(), 1u);
  EXPECT_EQ(again.prefills[0].begin, first.prefills[0].begin);
  EXPECT_EQ(again.prefills[0].count, first.prefills[0].count);
  EXPECT_THAT(first.admitted, ::testing::SizeIs(1));
  EXPECT_THAT(again.admitted, IsEmpty());
}

TEST_F(SchedulerTest, ReservedSequenceDecodesOnceActivated) {
  ASSERT_EQ(engine_->Reserve(Spec(1, 100, 200)), absl::OkStatus());
  EXPECT_EQ(scheduler().stats().parked, 1);
  EXPECT_TRUE(Step().empty());
  engine_->Activate(Id(1));
  EXPECT_THAT(Step().decodes, ElementsAre(Id(1)));
  EXPECT_EQ(engine_->sequences.at(Id(1)).known, 102);
}

TEST_F(SchedulerTest, AReservedSequenceMayResumeBehindEmittedTokens) {
  ASSERT_EQ(engine_->Reserve(Spec(1, 100, 200)), absl::OkStatus());
  engine_->Resume(Id(1), 5);
  const StepPlan plan = Step();
  ASSERT_EQ(plan.prefills.size(), 1u);
  EXPECT_EQ(plan.prefills[0].begin, 100);
  EXPECT_EQ(plan.prefills[0].count, 5);
  EXPECT_TRUE(plan.prefills[0].last);
  EXPECT_THAT(Step().decodes, ElementsAre(Id(1)));
  EXPECT_EQ(engine_->sequences.at(Id(1)).known, 107);
}

TEST_F(SchedulerTest, EmittedTokensAreComputedWithThePrompt) {
  SequenceSpec spec = Spec(1, 100, 200);
  spec.emitted_tokens = 20;
  ASSERT_EQ(engine_->Enqueue(spec), absl::OkStatus());
  const StepPlan plan = Step();
  ASSERT_EQ(plan.prefills.size(), 1u);
  EXPECT_EQ(plan.prefills[0].count, 120);
  EXPECT_THAT(Step().decodes, ElementsAre(Id(1)));
  spec.id = Id(2);
  spec.emitted_tokens = 101;  // more than it may emit
  EXPECT_EQ(engine_->Enqueue(spec).code(), absl::StatusCode::kInvalidArgument);
  spec.emitted_tokens = 20;
  spec.width = 2;
  EXPECT_EQ(engine_->Enqueue(spec).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SchedulerTest, AReservationLeavesRoomForTheHeadOfTheQueue) {
  Rebuild([](SchedulerOptions& options) { options.total_blocks = 10; });
  ASSERT_EQ(Enqueue(1, 100), absl::OkStatus());  // 8 blocks with its output
  SequenceSpec spec = Spec(2, 40, 60);           // 4, the last before the head ends
  EXPECT_EQ(engine_->Reserve(spec).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(scheduler().Contains(Id(2)));
  spec.priority = 1;
  EXPECT_EQ(engine_->Reserve(spec), absl::OkStatus());
}

TEST_F(SchedulerTest, AReservationNeedsRoomToGrowBesideAdmittedSequences) {
  Rebuild([](SchedulerOptions& options) { options.total_blocks = 10; });
  ASSERT_EQ(engine_->Reserve(Spec(1, 32, 96)), absl::OkStatus());  // 2 blocks now, 6 in the end
  EXPECT_EQ(engine_->Reserve(Spec(2, 32, 96)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine_->Reserve(Spec(3, 32, 64)), absl::OkStatus());
}

TEST_F(SchedulerTest, ASuccessorTakesOverAReservationPastTheQueue) {
  Rebuild([](SchedulerOptions& options) { options.total_blocks = 10; });
  ASSERT_EQ(engine_->Reserve(Spec(1, 40, 48)), absl::OkStatus());
  ASSERT_EQ(Enqueue(5, 130), absl::OkStatus());
  engine_->TransferTo(Id(1), Spec(2, 40, 45));
  EXPECT_FALSE(scheduler().Contains(Id(1)));
  engine_->Activate(Id(2));
  EXPECT_THAT(Step().decodes, ElementsAre(Id(2)));
}

TEST_F(SchedulerTest, ParkedSequenceKeepsItsBlocksAndDoesNotRun) {
  MakeRunning(1, 2);
  engine_->Park(Id(1));
  EXPECT_THAT(Step().decodes, ElementsAre(Id(2)));
  EXPECT_EQ(engine_->blocks.held(Id(1)), 1);
  engine_->Finish(Id(1));
  EXPECT_EQ(scheduler().stats().parked, 0);
}

TEST_F(SchedulerTest, TheSumOfAllWidthsIsLimited) {
  Rebuild([](SchedulerOptions& options) { options.max_sequences = 4; });
  SequenceSpec spec = Spec(1, 20, 40);
  spec.width = 3;
  ASSERT_EQ(engine_->Reserve(spec), absl::OkStatus());
  ASSERT_EQ(Enqueue(2, 10), absl::OkStatus());
  ASSERT_EQ(Enqueue(3, 10), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(2));
  EXPECT_EQ(engine_->Reserve(Spec(4, 1, 2)).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SchedulerTest, AReservationTakesARowForEachOfItsChoices) {
  Rebuild([](SchedulerOptions& options) { options.max_sequences = 4; });
  SequenceSpec spec = Spec(1, 20, 40);
  spec.width = 3;
  ASSERT_EQ(engine_->Reserve(spec), absl::OkStatus());
  SequenceSpec wide = Spec(2, 20, 40);
  wide.width = 2;
  EXPECT_EQ(engine_->Reserve(wide).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine_->Reserve(Spec(3, 20, 40)), absl::OkStatus());
}

TEST_F(SchedulerTest, AForkedSequenceContinuesAsSeveral) {
  SequenceSpec spec = Spec(1, 64, 128);
  spec.width = 3;
  spec.deadline = engine_->now + seconds(9);
  ASSERT_EQ(engine_->Enqueue(spec), absl::OkStatus());
  Step();
  engine_->Fork(Id(1), {Id(2), Id(3)});
  EXPECT_THAT(Step().decodes, ElementsAre(Id(1), Id(2), Id(3)));
  EXPECT_EQ(engine_->blocks.AvailableBlocks(), 4096 - 4 - 3) << "one prompt and three tails";
  engine_->Finish(Id(2));
  EXPECT_THAT(Step().decodes, ElementsAre(Id(1), Id(3)));
  engine_->now += seconds(9);
  EXPECT_THAT(Step().expired, ElementsAre(Id(1), Id(3)));
}

TEST_F(SchedulerTest, ASequenceWhoseDeadlinePassedLeavesInAnyPhase) {
  MakeRunning(1, 1);
  const auto spec = [&](uint64_t id, int after) {
    SequenceSpec one = Spec(id, 2000, 2100);
    one.deadline = engine_->now + seconds(after);
    return one;
  };
  ASSERT_EQ(engine_->Enqueue(spec(10, 5)), absl::OkStatus());
  ASSERT_EQ(engine_->Enqueue(spec(11, 3)), absl::OkStatus());
  ASSERT_EQ(engine_->Reserve(spec(12, 4)), absl::OkStatus());
  EXPECT_EQ(scheduler().NextDeadline(), engine_->now + seconds(3));
  EXPECT_THAT(Step().expired, IsEmpty());
  engine_->now += seconds(4);
  EXPECT_THAT(Step().expired, ElementsAre(Id(11), Id(12))) << "a deadline that is now has passed";
  EXPECT_FALSE(scheduler().Contains(Id(11)));
  EXPECT_EQ(scheduler().NextDeadline(), engine_->now + seconds(1));
  engine_->now += seconds(1);
  const StepPlan plan = Step();
  EXPECT_THAT(plan.expired, ElementsAre(Id(10)));
  EXPECT_THAT(plan.decodes, ElementsAre(Id(1)));
  EXPECT_EQ(scheduler().NextDeadline(), kNoDeadline);
  EXPECT_EQ(scheduler().stats().waiting_prompt_tokens, 0);
}

TEST_F(SchedulerTest, AnAdmissionTakesAsManyBlocksAsTheViewSays) {
  Rebuild([](SchedulerOptions& options) {
    options.total_blocks = 10;
    options.max_prefill_chunk = 16;
  });
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(engine_->Enqueue(Spec(id, 80, 80)), absl::OkStatus());
    engine_->blocks.TakeWhole(Id(id));
  }
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1, 2));
  EXPECT_EQ(engine_->blocks.AvailableBlocks(), 0);
  for (int step = 0; step < 4; ++step) EXPECT_THAT(Ids(Step().prefills), ElementsAre(1, 2));
}

// The prefix takes three blocks, and the copy of its last one would be the fourth.
TEST_F(SchedulerTest, APrefixThatDoesNotFitBesideItsCopyIsComputedAgain) {
  Rebuild([](SchedulerOptions& options) { options.total_blocks = 3; });
  ASSERT_EQ(engine_->Enqueue(Spec(1, 48, 48), 7, 48), absl::OkStatus());
  Step();
  engine_->Finish(Id(1));
  ASSERT_EQ(engine_->Enqueue(Spec(2, 48, 48), 7, 48), absl::OkStatus());
  const StepPlan plan = Step();
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].cached_tokens, 0);
  EXPECT_EQ(plan.prefills.at(0).count, 48);
}

TEST_F(SchedulerTest, MoreRunningSequencesThanTheBudgetTakeTurns) {
  Rebuild([](SchedulerOptions& options) { options.max_step_tokens = 3; });
  for (uint64_t id = 1; id <= 7; ++id) {
    ASSERT_EQ(engine_->Reserve(Spec(id, 1, 9)), absl::OkStatus());
    engine_->Activate(Id(id));
  }
  std::vector<int> turns(8, 0);
  for (int step = 0; step < 7; ++step) {
    const StepPlan plan = Step();
    ASSERT_EQ(plan.decodes.size(), 3u);
    for (SequenceId id : plan.decodes) ++turns[id.value()];
  }
  EXPECT_THAT(turns, ElementsAre(0, 3, 3, 3, 3, 3, 3, 3));
}

TEST_F(SchedulerTest, AWideDecodeTakesAsManyTokensAsItIsWide) {
  Rebuild([](SchedulerOptions& options) { options.max_step_tokens = 10; });
  SequenceSpec spec = Spec(1, 8, 40);
  spec.width = 4;
  ASSERT_EQ(engine_->Enqueue(spec), absl::OkStatus());
  Step();
  ASSERT_EQ(Enqueue(2, 50), absl::OkStatus());
  const StepPlan plan = Step();
  EXPECT_THAT(plan.decodes, ElementsAre(Id(1)));
  ASSERT_EQ(plan.prefills.size(), 1u);
  EXPECT_EQ(plan.prefills[0].count, 6);
}

TEST_F(SchedulerTest, AdvanceSkipsSequencesThatFinishedDuringTheStep) {
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());
  ASSERT_EQ(Enqueue(2, 64), absl::OkStatus());
  const StepPlan plan = engine_->Plan();
  scheduler().Finish(Id(1));
  scheduler().Finish(Id(99));
  scheduler().Advance(plan);
  EXPECT_EQ(scheduler().CheckInvariants(), absl::OkStatus());
  EXPECT_THAT(engine_->Plan().decodes, ElementsAre(Id(2)));
}

TEST_F(SchedulerTest, RefusesASequenceThatCanNeverFitAndNamesTheNumbers) {
  const absl::Status status = engine_->Enqueue(Spec(1, 60000, 70000));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("4375"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("4096"));
  EXPECT_EQ(engine_->Enqueue(Spec(1, 0, 5)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Reserve(Spec(1, 6, 5)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(scheduler().Contains(Id(1)));
}

TEST_F(SchedulerTest, RefusesRowsThatCanNeverFit) {
  SequenceSpec wide = Spec(1, 1024, 16 * 1024);  // 64 shared blocks and 960 in each row
  wide.width = 4;
  EXPECT_EQ(engine_->Enqueue(wide), absl::OkStatus());
  wide.id = Id(2);
  wide.width = 5;
  absl::Status status = engine_->Enqueue(wide);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 rows need 4866"));
  wide.width = 65;
  status = engine_->Enqueue(wide);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_sequences=64"));
}

TEST_F(SchedulerTest, AFullQueueRefusesNewSequences) {
  Rebuild([](SchedulerOptions& options) { options.max_waiting = 2; });
  EXPECT_EQ(Enqueue(1, 10), absl::OkStatus());
  EXPECT_EQ(Enqueue(2, 10), absl::OkStatus());
  EXPECT_EQ(Enqueue(3, 10).code(), absl::StatusCode::kResourceExhausted);
  Step();
  EXPECT_EQ(Enqueue(3, 10), absl::OkStatus());
}

TEST(SchedulerOptionsTest, EachFieldIsChecked) {
  const SchedulerOptions good = SchedulerFixture::Options();
  EXPECT_EQ(good.Validate(), absl::OkStatus());
  const auto refused = [&](auto change, const char* field) {
    SchedulerOptions options = good;
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
  refused([](auto& o) { o.max_skips = -1; }, "max_skips=-1");
  refused([](auto& o) { o.max_wait = Duration::zero(); }, "max_wait=0");
}

}  // namespace
}  // namespace tandem::scheduler_test
