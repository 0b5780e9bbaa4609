// What happens when blocks run out.
#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/scheduler_fixture.h"

namespace tandem::preemption_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using How = Preemption::How;

class PreemptionTest : public SchedulerFixture {
 protected:
  void RebuildSmall(int32_t total_blocks) {
    Rebuild([&](SchedulerOptions& options) { options.total_blocks = total_blocks; });
  }

  // Outputs that end early make the scheduler expect short ones, so that it admits more than fits.
  void ExpectShortOutputs() {
    for (uint64_t id = 1000; id < 1200; ++id) {
      ASSERT_EQ(engine_->Enqueue(Spec(id, 1, 60)), absl::OkStatus());
      Step();
      engine_->Finish(Id(id));
    }
  }

  // Runs two sequences until each holds 3 of 7 blocks and needs another one.
  void RunTwoUntilBlocksRunOut(int32_t first_priority, int32_t second_priority) {
    RebuildSmall(7);
    ExpectShortOutputs();
    SequenceSpec spec = Spec(1, 32, 80);
    spec.priority = first_priority;
    ASSERT_EQ(engine_->Enqueue(spec), absl::OkStatus());
    spec.id = Id(2);
    spec.priority = second_priority;
    spec.max_total_tokens = 64;
    ASSERT_EQ(engine_->Enqueue(spec), absl::OkStatus());
    ASSERT_EQ(Step().prefills.size(), 2u);
    for (int i = 0; i < 16; ++i) ASSERT_EQ(Step().decodes.size(), 2u);
  }
};

TEST_F(PreemptionTest, TheLatestSequenceOfTheLowestPriorityIsPreemptedAndComputedAgain) {
  RunTwoUntilBlocksRunOut(0, 0);
  const StepPlan plan = Step();
  EXPECT_THAT(Ids(plan.preempted), ElementsAre(2));
  EXPECT_EQ(plan.preempted[0].how, How::kRecompute);
  EXPECT_THAT(plan.decodes, ElementsAre(Id(1)));
  EXPECT_EQ(scheduler().stats().waiting_prompt_tokens, 49) << "its output is computed again too";
  engine_->Finish(Id(1));
  const StepPlan again = Step();
  ASSERT_THAT(Ids(again.prefills), ElementsAre(2));
  EXPECT_EQ(again.prefills[0].begin, 0);
  EXPECT_EQ(again.prefills[0].count, 49);
  EXPECT_EQ(engine_->sequences.at(Id(2)).known, 50);
}

TEST_F(PreemptionTest, HigherPriorityKeepsItsBlocks) {
  RunTwoUntilBlocksRunOut(0, 1);
  EXPECT_THAT(Ids(Step().preempted), ElementsAre(1));
}

TEST_F(PreemptionTest, ASequenceThatIsCheaperToCopyIsSwappedAndComesBack) {
  Measure(milliseconds(1), microseconds(10));
  RunTwoUntilBlocksRunOut(0, 0);
  engine_->blocks.set_host_blocks(8);
  StepPlan plan = Step();
  ASSERT_THAT(Ids(plan.preempted), ElementsAre(2));
  EXPECT_EQ(plan.preempted[0].how, How::kSwap);
  EXPECT_THAT(plan.decodes, ElementsAre(Id(1))) << "there is one block";
  EXPECT_EQ(scheduler().stats().swapped, 1);
  engine_->EndCopies();
  EXPECT_THAT(Step().swap_ins, IsEmpty()) << "no room to grow yet";
  engine_->Finish(Id(1));
  EXPECT_THAT(Step().swap_ins, ElementsAre(Id(2)));
  engine_->EndCopies();
  plan = Step();
  EXPECT_THAT(plan.decodes, ElementsAre(Id(2)));
  EXPECT_THAT(plan.prefills, IsEmpty());
  EXPECT_EQ(scheduler().stats().preempted_swap, 1u);
  EXPECT_EQ(scheduler().stats().preempted_recompute, 0u);
}

TEST_F(PreemptionTest, ASequenceThatIsCheaperToComputeIsComputedAgain) {
  Measure(microseconds(1), milliseconds(10));
  RunTwoUntilBlocksRunOut(0, 0);
  engine_->blocks.set_host_blocks(8);
  EXPECT_EQ(Step().preempted.at(0).how, How::kRecompute);
}

TEST_F(PreemptionTest, WithoutRoomOnTheHostItIsComputedAgain) {
  Measure(milliseconds(1), microseconds(10));
  RunTwoUntilBlocksRunOut(0, 0);
  engine_->blocks.set_host_blocks(1);
  EXPECT_EQ(Step().preempted.at(0).how, How::kRecompute);
}

TEST_F(PreemptionTest, AFailedSwapIsComputedAgain) {
  Measure(milliseconds(1), microseconds(10));
  RunTwoUntilBlocksRunOut(0, 0);
  engine_->blocks.set_host_blocks(8);
  Step();
  engine_->FailSwap(Id(2));
  engine_->Finish(Id(1));
  const StepPlan plan = Step();
  ASSERT_THAT(Ids(plan.prefills), ElementsAre(2));
  EXPECT_EQ(plan.prefills[0].count, 49);
}

TEST_F(PreemptionTest, DecodesWaitForBlocksThatASwapWillFree) {
  Measure(milliseconds(1), microseconds(10));
  RebuildSmall(10);
  ExpectShortOutputs();
  engine_->blocks.set_host_blocks(8);
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(engine_->Enqueue(Spec(id, 32, 80)), absl::OkStatus());
  }
  ASSERT_EQ(Step().prefills.size(), 3u);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(Step().decodes.size(), 3u);
  const StepPlan plan = Step();
  EXPECT_THAT(Ids(plan.preempted), ElementsAre(3)) << "its 3 blocks become free after the copy";
  EXPECT_THAT(plan.decodes, ElementsAre(Id(1))) << "one block is left until then";
  EXPECT_THAT(Step().preempted, IsEmpty());
  engine_->EndCopies();
  EXPECT_THAT(Step().decodes, ElementsAre(Id(2), Id(1)));
}

TEST_F(PreemptionTest, NoMoreSequencesArePreemptedThanNecessary) {
  RebuildSmall(4);
  ExpectShortOutputs();
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(engine_->Enqueue(Spec(id, 14, 58)), absl::OkStatus());
  }
  ASSERT_EQ(Step().prefills.size(), 3u);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(Step().decodes.size(), 3u) << "the last blocks have free slots";
  const StepPlan plan = Step();
  EXPECT_THAT(Ids(plan.preempted), ElementsAre(3)) << "it frees its block and needs no other";
  EXPECT_THAT(plan.decodes, ElementsAre(Id(1), Id(2)));
}

TEST_F(PreemptionTest, ASequenceOnTheHostIsNotOvertakenByALowerRankedOne) {
  Measure(milliseconds(1), microseconds(10));
  RunTwoUntilBlocksRunOut(0, 0);
  engine_->blocks.set_host_blocks(8);
  ASSERT_THAT(Ids(Step().preempted), ElementsAre(2));
  engine_->EndCopies();
  ASSERT_EQ(engine_->Enqueue(Spec(3, 10, 16)), absl::OkStatus());
  EXPECT_THAT(Step().admitted, IsEmpty()) << "3 would fit, but 2 does not yet";
  SequenceSpec urgent = Spec(4, 10, 16);
  urgent.priority = 1;
  ASSERT_EQ(engine_->Enqueue(urgent), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(4));
}

TEST_F(PreemptionTest, BeamsBeginAgainFromTheirPrompt) {
  RebuildSmall(10);
  ExpectShortOutputs();
  ASSERT_EQ(engine_->Enqueue(Spec(1, 32, 128)), absl::OkStatus());
  SequenceSpec beams = Spec(2, 32, 64);
  beams.width = 3;
  ASSERT_EQ(engine_->Enqueue(beams), absl::OkStatus());
  StepPlan plan = Step();
  while (plan.preempted.empty()) plan = Step();
  ASSERT_THAT(Ids(plan.preempted), ElementsAre(2));
  EXPECT_GT(engine_->sequences.at(Id(1)).known, 40);
  engine_->Finish(Id(1));
  plan = Step();
  ASSERT_THAT(Ids(plan.prefills), ElementsAre(2));
  EXPECT_EQ(plan.prefills[0].count, 32);
}

TEST_F(PreemptionTest, ParkedSequencesKeepTheirBlocksAndTheLastOneWaits) {
  RebuildSmall(6);
  ASSERT_EQ(engine_->Reserve(Spec(1, 48, 48)), absl::OkStatus());
  ASSERT_EQ(engine_->Enqueue(Spec(2, 32, 90)), absl::OkStatus());
  Step();
  for (int step = 0; step < 16; ++step) ASSERT_EQ(Step().decodes.size(), 1u);
  const StepPlan plan = Step();
  EXPECT_TRUE(plan.empty()) << "1 holds three blocks, 2 the others";
  EXPECT_THAT(plan.preempted, IsEmpty());
  engine_->Finish(Id(1));
  EXPECT_THAT(Step().decodes, ElementsAre(Id(2)));
}

TEST_F(PreemptionTest, PrefillsThatHoldAllBlocksBetweenThemDoNotStall) {
  RebuildSmall(8);
  ExpectShortOutputs();
  Rebuild([](SchedulerOptions& options) {
    options.total_blocks = 8;
    options.max_step_tokens = 64;
    options.max_prefill_chunk = 32;
  });
  // The second is admitted while the first has room, then a third party parks blocks.
  ASSERT_EQ(engine_->Enqueue(Spec(1, 64, 64)), absl::OkStatus());
  ASSERT_EQ(engine_->Enqueue(Spec(2, 64, 64)), absl::OkStatus());
  ASSERT_EQ(Step().prefills.size(), 2u);
  engine_->blocks.Know(Spec(99, 64, 64));
  engine_->blocks.Compute(Id(99), 64);
  const StepPlan plan = Step();
  EXPECT_THAT(Ids(plan.preempted), ElementsAre(2));
  EXPECT_THAT(Ids(plan.prefills), ElementsAre(1));
}

// The lowest ranked prefill (1) holds only blocks that it shares with the middle one (2), so taking
// it off frees nothing and the middle one has to go as well before the highest (3) can continue.
TEST_F(PreemptionTest, APrefillWhoseBlocksAreAllSharedDoesNotUnblockTheHighestRanked) {
  Rebuild([](SchedulerOptions& options) {
    options.total_blocks = 16;
    options.max_step_tokens = 32;
  });
  for (uint64_t id = 1; id <= 3; ++id) {
    SequenceSpec spec = Spec(id, 96, 96);
    spec.priority = static_cast<int32_t>(id);
    ASSERT_EQ(engine_->Enqueue(spec, id == 3 ? 0 : 7, id == 3 ? 0 : 32), absl::OkStatus());
    EXPECT_THAT(Ids(Step().prefills), ElementsAre(id));
  }
  engine_->blocks.Know(Spec(99, 160, 160));  // a reservation takes every block that is left
  engine_->blocks.Compute(Id(99), 160);
  const StepPlan plan = Step();
  EXPECT_THAT(Ids(plan.preempted), ElementsAre(1, 2));
  EXPECT_THAT(Ids(plan.prefills), ElementsAre(3));
}

// Blocks change hands in a step that preempts, so a sequence on the host waits for the next step
// even when the blocks of the preempted one would be enough for it.
TEST_F(PreemptionTest, NothingComesBackFromTheHostInAStepThatPreempts) {
  Measure(milliseconds(1), microseconds(10));
  RunTwoUntilBlocksRunOut(0, 0);
  engine_->blocks.set_host_blocks(3);  // room for the sequence 2 alone
  ASSERT_THAT(Ids(Step().preempted), ElementsAre(2));
  engine_->EndCopies();
  for (int i = 0; i < 10; ++i) ASSERT_THAT(Step().decodes, ElementsAre(Id(1)));
  SequenceSpec urgent = Spec(3, 33, 48);
  urgent.priority = 1;
  ASSERT_EQ(engine_->Enqueue(urgent), absl::OkStatus());
  ASSERT_THAT(Ids(Step().prefills), ElementsAre(3));
  StepPlan plan = Step();
  while (plan.preempted.empty()) plan = Step();
  ASSERT_THAT(Ids(plan.preempted), ElementsAre(1));
  ASSERT_EQ(plan.preempted[0].how, How::kRecompute);
  EXPECT_THAT(plan.swap_ins, IsEmpty());
  EXPECT_THAT(Step().swap_ins, ElementsAre(Id(2)));
}

// An admission resets how often a sequence was overtaken: when it waits again after a preemption,
// others may overtake it again.
TEST_F(PreemptionTest, APreemptedSequenceMayBeOvertakenAsOftenAsANewOne) {
  Rebuild([](SchedulerOptions& options) {
    options.total_blocks = 10;
    options.max_skips = 1;
  });
  ExpectShortOutputs();
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());
  ASSERT_EQ(engine_->Enqueue(Spec(2, 100, 140)), absl::OkStatus());
  ASSERT_EQ(Enqueue(3, 10), absl::OkStatus());
  ASSERT_THAT(Ids(Step().prefills), ElementsAre(1, 3)) << "2 is overtaken as often as it may be";
  engine_->Finish(Id(1));
  engine_->Finish(Id(3));
  ASSERT_THAT(Ids(Step().prefills), ElementsAre(2));
  SequenceSpec urgent = Spec(4, 30, 100);
  urgent.priority = 1;
  ASSERT_EQ(engine_->Enqueue(urgent), absl::OkStatus());
  StepPlan plan = Step();
  while (plan.preempted.empty()) plan = Step();
  ASSERT_THAT(Ids(plan.preempted), ElementsAre(2));
  ASSERT_EQ(Enqueue(5, 10), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(5));
}

TEST_F(PreemptionTest, AdmissionLeavesRoomToGrow) {
  RebuildSmall(10);
  ASSERT_EQ(engine_->Enqueue(Spec(1, 32, 96)), absl::OkStatus());  // 2 blocks now, 6 in the end
  ASSERT_EQ(engine_->Enqueue(Spec(2, 32, 96)), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1));
  RebuildSmall(10);
  ExpectShortOutputs();
  ASSERT_EQ(engine_->Enqueue(Spec(1, 32, 96)), absl::OkStatus());
  ASSERT_EQ(engine_->Enqueue(Spec(2, 32, 96)), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1, 2)) << "recent outputs were shorter";
}

// Leaves the first 96 tokens of group 7 on the host, in a pool of 12 blocks.
class RestoreTest : public PreemptionTest {
 protected:
  void SetUp() override {
    Measure(milliseconds(1), microseconds(10));
    RebuildSmall(12);
    engine_->blocks.set_demotes(true);
    ASSERT_EQ(engine_->Enqueue(Spec(1, 100, 110), 7, 96), absl::OkStatus());
    Step();
    engine_->Finish(Id(1));
    ASSERT_EQ(engine_->Enqueue(Spec(2, 180, 190)), absl::OkStatus());  // evicts them
    Step();
    engine_->Finish(Id(2));
  }
};

TEST_F(RestoreTest, APrefixIsRestoredWhereCopyingIsCheaper) {
  ASSERT_EQ(engine_->Enqueue(Spec(3, 100, 110), 7, 96), absl::OkStatus());
  const StepPlan plan = Step();
  EXPECT_THAT(plan.restores, ElementsAre(Id(3)));
  EXPECT_TRUE(plan.empty());
  EXPECT_THAT(Step().restores, IsEmpty()) << "the copy is not complete";
  engine_->EndCopies();
  const StepPlan after = Step();
  ASSERT_EQ(after.admitted.size(), 1u);
  EXPECT_EQ(after.admitted[0].cached_tokens, 96);
}

TEST_F(RestoreTest, APrefixThatCouldNotBeRestoredIsComputed) {
  ASSERT_EQ(engine_->Enqueue(Spec(3, 100, 110), 7, 96), absl::OkStatus());
  EXPECT_THAT(engine_->Plan().restores, ElementsAre(Id(3)));
  const StepPlan plan = Step();  // the restore was not begun
  EXPECT_THAT(plan.restores, IsEmpty());
  ASSERT_THAT(Ids(plan.prefills), ElementsAre(3));
  EXPECT_EQ(plan.prefills[0].count, 100);
}

TEST_F(RestoreTest, AStepThatRestoresAttachesNoCachedPrefix) {
  ASSERT_EQ(engine_->Enqueue(Spec(3, 40, 41), 8, 32), absl::OkStatus());
  Step();
  engine_->Finish(Id(3));
  ASSERT_EQ(engine_->Enqueue(Spec(4, 100, 101), 7, 96), absl::OkStatus());
  ASSERT_EQ(engine_->Enqueue(Spec(5, 40, 41), 8, 32), absl::OkStatus());
  StepPlan plan = Step();
  EXPECT_THAT(plan.restores, ElementsAre(Id(4)));
  EXPECT_THAT(plan.admitted, IsEmpty());
  plan = Step();
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].id, Id(5));
  EXPECT_EQ(plan.admitted[0].cached_tokens, 32);
}

}  // namespace
}  // namespace tandem::preemption_test
