// The order of sequences: policies, aging, and how often the head of the queue may be overtaken.
#include <chrono>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/scheduler_fixture.h"

namespace tandem::order_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OrderTest : public SchedulerFixture {
 protected:
  absl::Status EnqueueFor(uint64_t tenant, uint64_t id, int32_t prompt, int32_t total) {
    SequenceSpec spec = Spec(id, prompt, total);
    spec.tenant = tenant;
    return engine_->Enqueue(spec);
  }
};

TEST_F(OrderTest, HigherPriorityGoesFirstThenArrival) {
  Rebuild([](SchedulerOptions& options) { options.max_step_tokens = 64; });
  ASSERT_EQ(Enqueue(1, 64, 0), absl::OkStatus());
  ASSERT_EQ(Enqueue(2, 64, 0), absl::OkStatus());
  ASSERT_EQ(Enqueue(3, 64, 5), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(3));
  engine_->Finish(Id(3));
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1));
  engine_->Finish(Id(1));
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(2));
}

TEST_F(OrderTest, HigherPriorityTakesTheBudgetOfAPrefillUnderWay) {
  ASSERT_EQ(Enqueue(1, 5000, 0), absl::OkStatus());
  Step();
  ASSERT_EQ(Enqueue(2, 1000, 1), absl::OkStatus());
  const StepPlan plan = Step();
  ASSERT_THAT(Ids(plan.prefills), ElementsAre(2, 1));
  EXPECT_EQ(plan.prefills[1].begin, 1024);
  EXPECT_EQ(plan.prefills[1].count, 24);
}

TEST_F(OrderTest, ATenantWithALongQueueDoesNotHoldUpAnother) {
  Rebuild([](SchedulerOptions& options) { options.max_step_tokens = 256; });
  for (uint64_t id = 1; id <= 20; ++id) {
    ASSERT_EQ(EnqueueFor(1, id, 256, 257), absl::OkStatus());
  }
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1));
  engine_->Finish(Id(1));
  ASSERT_EQ(EnqueueFor(2, 100, 256, 257), absl::OkStatus());
  ASSERT_EQ(EnqueueFor(2, 101, 256, 257), absl::OkStatus());
  std::vector<uint64_t> order;
  for (int step = 0; step < 4; ++step) {
    const StepPlan plan = Step();
    ASSERT_EQ(plan.prefills.size(), 1u);
    order.push_back(plan.prefills[0].id.value());
    engine_->Finish(plan.prefills[0].id);
  }
  EXPECT_THAT(order, ElementsAre(2, 100, 3, 101));
}

// Both tenants always have requests waiting, of 300 tokens and of 30. Neither longer prompts nor
// more requests give a tenant a larger share.
TEST_F(OrderTest, TenantsShareTokensEquallyUnderSaturation) {
  Rebuild([](SchedulerOptions& options) {
    options.max_step_tokens = 256;
    options.max_sequences = 16;
  });
  std::map<uint64_t, int64_t> tokens;
  std::map<uint64_t, int> waiting;
  std::map<SequenceId, int> left;
  uint64_t next = 1;
  for (int step = 0; step < 4000; ++step) {
    for (uint64_t tenant : {1, 2}) {
      for (; waiting[tenant] < 20; ++waiting[tenant]) {
        const int32_t prompt = tenant == 1 ? 300 : 30;
        const int32_t outputs = tenant == 1 ? 5 : 50;
        left[Id(next)] = outputs;
        ASSERT_EQ(EnqueueFor(tenant, next++, prompt, prompt + outputs), absl::OkStatus());
      }
    }
    const StepPlan plan = Step();
    for (const Admission& one : plan.admitted) --waiting[engine_->sequences.at(one.id).spec.tenant];
    for (const PrefillChunk& one : plan.prefills) {
      tokens[engine_->sequences.at(one.id).spec.tenant] += one.count;
    }
    for (SequenceId id : plan.decodes) {
      ++tokens[engine_->sequences.at(id).spec.tenant];
      if (--left[id] == 0) engine_->Finish(id);
    }
  }
  EXPECT_NEAR(static_cast<double>(tokens[1]) / static_cast<double>(tokens[2]), 1.0, 0.1);
}

// Tokens that a tenant decodes while no other tenant has work do not become a debt.
TEST_F(OrderTest, DecodingAloneMakesNoDebt) {
  Rebuild([](SchedulerOptions& options) { options.max_step_tokens = 64; });
  ASSERT_EQ(EnqueueFor(1, 1, 64, 2000), absl::OkStatus());
  for (int step = 0; step < 1800; ++step) Step();
  std::map<uint64_t, int> turns;
  for (uint64_t id = 11; id <= 60; ++id) {
    ASSERT_EQ(EnqueueFor(id % 2 + 1, id, 63, 64), absl::OkStatus());
  }
  for (int step = 0; step < 16; ++step) {
    const StepPlan plan = Step();
    const SequenceId id = plan.prefills.at(0).id;
    ++turns[engine_->sequences.at(id).spec.tenant];
    engine_->Finish(id);
  }
  EXPECT_NEAR(turns[1], turns[2], 4);
}

// A tenant that is offered a turn and finds no room pays back nothing of its debt.
TEST_F(OrderTest, ATurnThatFindsNoRoomPaysNothing) {
  Rebuild([](SchedulerOptions& options) {
    options.max_step_tokens = 1024;
    options.total_blocks = 80;
    options.max_skips = 1'000'000;
  });
  ASSERT_EQ(EnqueueFor(3, 9, 16, 160), absl::OkStatus());
  ASSERT_EQ(Step().prefills.size(), 1u);
  ASSERT_EQ(EnqueueFor(1, 1, 1008, 1008), absl::OkStatus());  // 63 blocks: tenant 1 owes much
  ASSERT_EQ(Step().prefills.size(), 1u);
  engine_->Park(Id(1));
  ASSERT_EQ(EnqueueFor(1, 2, 320, 321), absl::OkStatus());  // 21 blocks: no room
  ASSERT_EQ(EnqueueFor(2, 3, 320, 321), absl::OkStatus());
  for (int step = 0; step < 50; ++step) EXPECT_THAT(Step().admitted, IsEmpty());
  engine_->Finish(Id(1));
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(3, 2));
}

TEST_F(OrderTest, ATenantThatWasAloneOwesNothing) {
  Rebuild([](SchedulerOptions& options) { options.max_step_tokens = 64; });
  for (uint64_t id = 1; id <= 40; ++id) {
    ASSERT_EQ(EnqueueFor(1, id, 64, 65), absl::OkStatus());
  }
  for (int step = 0; step < 30; ++step) {
    const StepPlan plan = Step();
    engine_->Finish(plan.prefills.at(0).id);
  }
  std::map<uint64_t, int> turns;
  for (uint64_t id = 101; id <= 110; ++id) {
    ASSERT_EQ(EnqueueFor(2, id, 64, 65), absl::OkStatus());
  }
  for (int step = 0; step < 16; ++step) {
    const StepPlan plan = Step();
    ++turns[plan.prefills.at(0).id.value() > 100 ? 2 : 1];
    engine_->Finish(plan.prefills[0].id);
  }
  EXPECT_NEAR(turns[1], turns[2], 4) << "one quantum is four of these";
}

TEST_F(OrderTest, TheDeadlinePolicyServesTheMostUrgentFirst) {
  Rebuild([](SchedulerOptions& options) {
    options.max_step_tokens = 64;
    options.policy = SchedulingPolicyKind::kDeadline;
  });
  const auto enqueue = [&](uint64_t id, int deadline, int32_t priority) {
    SequenceSpec spec = Spec(id, 64, 80);
    spec.priority = priority;
    if (deadline > 0) spec.deadline = engine_->now + seconds(deadline);
    return engine_->Enqueue(spec);
  };
  ASSERT_EQ(enqueue(1, 0, 0), absl::OkStatus());
  ASSERT_EQ(enqueue(2, 20, 0), absl::OkStatus());
  ASSERT_EQ(enqueue(3, 10, 0), absl::OkStatus());
  ASSERT_EQ(enqueue(4, 90, 1), absl::OkStatus());
  std::vector<uint64_t> order;
  for (int step = 0; step < 4; ++step) {
    order.push_back(Step().prefills.at(0).id.value());
    engine_->Finish(Id(order.back()));
  }
  EXPECT_THAT(order, ElementsAre(4, 3, 2, 1));
}

TEST_F(OrderTest, ASequenceThatWaitedTooLongGoesFirst) {
  Rebuild([](SchedulerOptions& options) {
    options.max_step_tokens = 64;
    options.max_wait = seconds(5);
  });
  ASSERT_EQ(Enqueue(1, 64, 0), absl::OkStatus());
  for (uint64_t id = 2; id < 8; ++id) {
    ASSERT_EQ(Enqueue(id, 64, 9), absl::OkStatus());
    EXPECT_THAT(Ids(Step().prefills), ElementsAre(id));
    engine_->Finish(Id(id));
    engine_->now += seconds(1);
  }
  ASSERT_EQ(Enqueue(9, 64, 9), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1));
}

TEST_F(OrderTest, WhileAnAgedSequenceHasNoRoomNoOtherIsAdmitted) {
  Rebuild([](SchedulerOptions& options) {
    options.total_blocks = 10;
    options.max_wait = seconds(5);
  });
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());
  Step();
  ASSERT_EQ(Enqueue(2, 120), absl::OkStatus());
  engine_->now += seconds(6);
  ASSERT_EQ(Enqueue(3, 10, 9), absl::OkStatus());
  EXPECT_THAT(Step().admitted, IsEmpty());
  engine_->Finish(Id(1));
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(2));
}

TEST_F(OrderTest, TheOvertakenHeadIsAdmittedBeforeOthersWithRoom) {
  Rebuild([](SchedulerOptions& options) {
    options.total_blocks = 10;
    options.max_skips = 2;
  });
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());   // 5 blocks
  ASSERT_EQ(Enqueue(2, 100), absl::OkStatus());  // 8: no room beside 1
  for (uint64_t id = 3; id <= 5; ++id) ASSERT_EQ(Enqueue(id, 10), absl::OkStatus());  // 2 each
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1, 3, 4));
  engine_->Finish(Id(3));
  engine_->Finish(Id(4));
  EXPECT_THAT(Step().prefills, IsEmpty()) << "5 has room, but 2 was overtaken twice";
  engine_->Finish(Id(1));
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(2, 5));
}

// The pool has room for the fifth sequence, so only the bound of two overtakings keeps it back.
TEST_F(OrderTest, TheHeadOfTheQueueIsOvertakenExactlyMaxSkipsTimes) {
  Rebuild([](SchedulerOptions& options) {
    options.total_blocks = 12;
    options.max_skips = 2;
  });
  ASSERT_EQ(Enqueue(1, 64), absl::OkStatus());
  ASSERT_EQ(Enqueue(2, 110), absl::OkStatus());
  for (uint64_t id = 3; id <= 5; ++id) ASSERT_EQ(Enqueue(id, 10), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1, 3, 4));
}

TEST_F(OrderTest, ASequenceWaitsForASharedPrefixThatAnotherComputes) {
  Rebuild([](SchedulerOptions& options) { options.max_step_tokens = 100; });
  ASSERT_EQ(engine_->Enqueue(Spec(1, 170, 180), 7, 160), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1));
  ASSERT_EQ(engine_->Enqueue(Spec(2, 200, 210), 7, 160), absl::OkStatus());
  ASSERT_EQ(Enqueue(3, 20), absl::OkStatus());
  EXPECT_THAT(Ids(Step().prefills), ElementsAre(1, 3)) << "2 waits for the prefix that 1 computes";
  const StepPlan plan = Step();
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].cached_tokens, 160);
  EXPECT_EQ(plan.prefills[0].begin, 160);
  EXPECT_EQ(plan.prefills[0].count, 40);
}

}  // namespace
}  // namespace tandem::order_test
