// A sequence that fits into the pool is admitted, down to the last block, and an accepted one does
// not wait while there is room.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/scheduler.h"
#include "tests/unit/scheduler/fake_engine.h"

namespace tandem::scheduler_admission_test {
namespace {

constexpr uint64_t kPools = 4000;
constexpr int32_t kMaxWidth = 6;

// A pool of random size and the sequences in it.
class Pool {
 public:
  explicit Pool(uint64_t seed, int32_t max_step_tokens = 0)
      : random_(seed), options_(RandomOptions(max_step_tokens)) {}

  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  bool Chance(int32_t one_in) { return Pick(1, one_in) == 1; }
  int32_t total_blocks() const { return options_.total_blocks; }
  int32_t tokens() const { return options_.total_blocks * options_.block_tokens; }

  // A sequence that needs about as many blocks as `blocks`: some fit, some do not.
  SequenceSpec RandomSpec(int32_t blocks) {
    SequenceSpec spec = {.id = SequenceId(next_id_++)};
    if (Chance(3)) spec.width = Pick(2, kMaxWidth);
    spec.prompt_tokens = Pick(1, blocks * options_.block_tokens);
    const int32_t left = blocks * options_.block_tokens - spec.prompt_tokens;
    const int32_t output = left / spec.width + Pick(-2, 2);
    spec.max_total_tokens = spec.prompt_tokens + std::max(0, Chance(3) ? Pick(0, left) : output);
    return spec;
  }

  // Counts one block at a time: full blocks of the prompt once, the others in every row. While rows
  // copy the last block of the prompt its source exists as well, at worst one for every two rows.
  int32_t MostBlocks(const SequenceSpec& spec) const {
    int32_t blocks = 0;
    for (int32_t begin = 0; begin < spec.max_total_tokens; begin += options_.block_tokens) {
      const int32_t end = std::min(begin + options_.block_tokens, spec.max_total_tokens);
      blocks += end <= spec.prompt_tokens ? 1 : spec.width;
    }
    return spec.max_total_tokens > spec.prompt_tokens ? blocks + spec.width / 2 : blocks;
  }

  // The blocks that no sequence needs even at its full length.
  int32_t UnpromisedBlocks() {
    std::erase_if(promises_, [this](const Promise& one) {
      return std::ranges::none_of(one.ids,
                                  [this](SequenceId id) { return engine.sequences.contains(id); });
    });
    int32_t left = total_blocks();
    for (const Promise& one : promises_) left -= one.blocks;
    return left;
  }

  // Runs outputs that end at once, so that short ones are expected. They leave a cached prefix.
  void LearnShortOutputs(int32_t group) {
    const int32_t total = std::min(tokens(), 40);
    for (int i = 0; i < 20; ++i) {
      const SequenceSpec spec = {
          .id = SequenceId(next_id_++), .prompt_tokens = 1 + total / 2, .max_total_tokens = total};
      ASSERT_EQ(engine.Enqueue(spec, group, spec.prompt_tokens), absl::OkStatus());
      while (engine.sequences.at(spec.id).phase != Phase::kRunning) engine.Step();
      engine.Finish(spec.id);
    }
  }

  absl::Status Reserve(const SequenceSpec& spec) {
    absl::Status status = engine.Reserve(spec);
    if (status.ok()) promises_.push_back({MostBlocks(spec), {spec.id}});
    return status;
  }

  // The KV of a reserved sequence has arrived: it forks into choices or continues as beams.
  void Begin(const SequenceSpec& spec) {
    engine.Activate(spec.id);
    if (spec.max_total_tokens == spec.prompt_tokens) return engine.Finish(spec.id);
    if (Chance(2)) Fork(spec.id);
  }

  void Fork(SequenceId root) {
    std::vector<SequenceId> children;
    for (int32_t i = 1; i < engine.sequences.at(root).spec.width; ++i) {
      children.push_back(SequenceId(next_id_++));
    }
    engine.Fork(root, children);
    for (Promise& one : promises_) {
      if (one.ids.front() != root) continue;
      one.ids.insert(one.ids.end(), children.begin(), children.end());
    }
  }

  // One step, after which complete sequences end.
  StepPlan Step() {
    StepPlan plan = engine.Step();
    std::vector<SequenceId> ended;
    for (const auto& [id, one] : engine.sequences) {
      if (one.known > one.spec.max_total_tokens) ended.push_back(id);
    }
    for (SequenceId id : ended) engine.Finish(id);
    return plan;
  }

  void RunToTheEnd() {
    for (int step = 0; !engine.sequences.empty() && !testing::Test::HasFailure(); ++step) {
      const StepPlan plan = Step();
      ASSERT_FALSE(plan.empty()) << "nothing runs";
      ASSERT_TRUE(plan.preempted.empty());
      ASSERT_LT(step, 10'000);
    }
  }

 private:
  SchedulerOptions RandomOptions(int32_t max_step_tokens) {
    return {.max_step_tokens = max_step_tokens > 0 ? max_step_tokens : Pick(kMaxWidth, 64),
            .max_sequences = 256,
            .total_blocks = Pick(1, 40),
            .block_tokens = 1 << Pick(0, 5)};
  }

  struct Promise {
    int32_t blocks = 0;
    std::vector<SequenceId> ids;
  };

  std::mt19937_64 random_;
  const SchedulerOptions options_;
  std::vector<Promise> promises_;
  StepLearner latency_;
  uint64_t next_id_ = 1;

 public:
  FakeEngine engine{options_, latency_};
};

TEST(SchedulerAdmission, AnEmptyPoolAdmitsEverySequenceThatItAccepts) {
  int reserved = 0;
  int filled = 0;
  int refused = 0;
  for (uint64_t seed = 1; seed <= kPools && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Pool pool(seed);
    if (pool.Chance(2)) pool.LearnShortOutputs(pool.Pick(0, 1));
    for (int i = 0; i < 4 && !testing::Test::HasFailure(); ++i) {
      const int32_t total = pool.engine.blocks.AvailableBlocks();
      SequenceSpec spec = pool.RandomSpec(total);
      const bool fits = pool.MostBlocks(spec) <= total;
      ASSERT_EQ(pool.engine.scheduler.CheckFits(spec).ok(), fits);
      ++(fits ? reserved : refused);
      if (!fits) continue;
      filled += pool.MostBlocks(spec) == total ? 1 : 0;
      ASSERT_EQ(pool.Reserve(spec), absl::OkStatus())
          << spec.prompt_tokens << " to " << spec.max_total_tokens << " tokens in " << spec.width
          << " rows, of " << pool.tokens();
      pool.Begin(spec);
      pool.RunToTheEnd();
      spec.id = SequenceId(1'000'000 + i);
      ASSERT_EQ(pool.engine.Enqueue(spec, 1, spec.prompt_tokens), absl::OkStatus());
      ASSERT_EQ(pool.Step().admitted.size(), 1u) << "as a sequence that is prefilled here";
      pool.RunToTheEnd();
    }
  }
  EXPECT_GT(reserved, 5000);
  EXPECT_GT(filled, 500) << "to the last block";
  EXPECT_GT(refused, 1000);
}

// The other sequences have any length. A newcomer fits into the blocks that they never need.
TEST(SchedulerAdmission, ASequenceThatFitsBesideOthersAtTheirFullLengthIsAdmitted) {
  int reserved = 0;
  int beside = 0;
  for (uint64_t seed = 1; seed <= kPools && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Pool pool(seed);
    if (pool.Chance(2)) pool.LearnShortOutputs(0);
    std::vector<SequenceSpec> parked;
    for (int i = 0; i < 20 && !testing::Test::HasFailure(); ++i) {
      const int32_t left = pool.UnpromisedBlocks();
      if (left > 0) {
        const SequenceSpec spec = pool.RandomSpec(pool.Pick(1, left));
        if (pool.MostBlocks(spec) > left) continue;
        ++reserved;
        beside += pool.engine.sequences.empty() ? 0 : 1;
        ASSERT_EQ(pool.Reserve(spec), absl::OkStatus())
            << spec.prompt_tokens << " to " << spec.max_total_tokens << " tokens in " << spec.width
            << " rows, " << left << " blocks of " << pool.total_blocks() << " left";
        parked.push_back(spec);
      }
      while (!parked.empty() && pool.Chance(2)) {
        pool.Begin(parked.back());
        parked.pop_back();
      }
      for (int32_t steps = pool.Pick(0, 9); steps > 0; --steps) {
        ASSERT_TRUE(pool.Step().preempted.empty());
      }
    }
    for (const SequenceSpec& one : parked) pool.Begin(one);
    pool.RunToTheEnd();
  }
  EXPECT_GT(reserved, 10000);
  EXPECT_GT(beside, 5000);
}

// No sequence is admitted that will lack blocks while outputs are as long as expected.
TEST(SchedulerAdmission, NoSequenceIsPreemptedWhileOutputsAreAsLongAsExpected) {
  int admitted = 0;
  int waited = 0;
  for (uint64_t seed = 1; seed <= kPools && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Pool pool(seed, 1'000'000);
    for (int step = 0; step < 40 && !testing::Test::HasFailure(); ++step) {
      for (int32_t count = pool.Pick(0, 2); count > 0; --count) {
        pool.engine.Enqueue(pool.RandomSpec(pool.Pick(1, pool.total_blocks()))).IgnoreError();
      }
      const StepPlan plan = pool.Step();
      EXPECT_TRUE(plan.preempted.empty());
      admitted += static_cast<int>(plan.admitted.size());
      waited += pool.engine.scheduler.stats().waiting;
      for (const Admission& one : plan.admitted) {
        if (pool.engine.sequences.contains(one.id) && pool.Chance(2)) pool.Fork(one.id);
      }
    }
  }
  EXPECT_GT(admitted, 10000);
  EXPECT_GT(waited, 10000);
}

}  // namespace
}  // namespace tandem::scheduler_admission_test
