// A pool that is too small for its load is used well, without thrashing.
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "scheduler/scheduler.h"
#include "tests/unit/scheduler/fake_engine.h"

namespace tandem::scheduler_pressure_test {
namespace {

using std::chrono::milliseconds;

struct Pressure {
  int64_t preemptions = 0;
  int64_t tokens = 0;      // computed, those of preempted sequences again
  double occupancy = 0.0;  // of the pool, on average
};

// A full queue of prompts of 30 to 400 tokens, whose outputs may have 200 tokens and end earlier.
Pressure RunUnderPressure(int32_t total_blocks, int32_t shortest, int32_t longest) {
  constexpr int kRequests = 400;
  std::mt19937_64 random(7);
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  StepLearner latency;
  FakeEngine engine({.max_step_tokens = 256,
                     .max_sequences = 32,
                     .max_waiting = kRequests,
                     .total_blocks = total_blocks},
                    latency);
  std::map<SequenceId, int32_t> ends_at;
  for (uint64_t id = 1; id <= kRequests; ++id) {
    const int32_t prompt = pick(30, 400);
    const SequenceSpec spec = {
        .id = SequenceId(id), .prompt_tokens = prompt, .max_total_tokens = prompt + 200};
    EXPECT_EQ(engine.Enqueue(spec), absl::OkStatus());
    ends_at[spec.id] = prompt + pick(shortest, longest);
  }
  Pressure pressure;
  double occupied = 0.0;
  int64_t steps = 0;
  for (; !engine.sequences.empty() && steps < 100'000; ++steps) {
    const StepPlan plan = engine.Step();
    EXPECT_FALSE(plan.empty());
    pressure.preemptions += static_cast<int64_t>(plan.preempted.size());
    pressure.tokens += static_cast<int64_t>(plan.decodes.size());
    for (const PrefillChunk& chunk : plan.prefills) pressure.tokens += chunk.count;
    occupied += 1.0 - static_cast<double>(engine.blocks.AvailableBlocks()) / total_blocks;
    std::vector<SequenceId> ended;
    for (const auto& [id, one] : engine.sequences) {
      if (one.phase == Phase::kRunning && one.known >= ends_at[id]) ended.push_back(id);
    }
    for (SequenceId id : ended) engine.Finish(id);
    engine.now += milliseconds(10);
  }
  pressure.occupancy = occupied / static_cast<double>(steps);
  return pressure;
}

// Admission leaves enough room to grow that few sequences are preempted, and so little that blocks
// are not idle.
TEST(SchedulerPressure, APoolOfAThirdOfTheDemandIsUsedAndThrashesLittle) {
  for (const auto& [shortest, longest] : {std::pair{1, 200}, {200, 200}, {5, 20}, {100, 120}}) {
    const int32_t demand = 32 * (215 + (shortest + longest) / 2) / 16;  // of 32 sequences
    const Pressure enough = RunUnderPressure(4 * demand, shortest, longest);
    const Pressure scarce = RunUnderPressure(demand / 3, shortest, longest);
    const double again = static_cast<double>(scarce.tokens) / static_cast<double>(enough.tokens);
    fmt::print("outputs of {} to {}: {} preempted, {:.3f} of the tokens, {:.2f} occupied\n",
               shortest, longest, scarce.preemptions, again, scarce.occupancy);
    EXPECT_EQ(enough.preemptions, 0);
    EXPECT_LT(scarce.preemptions, 40) << "of 400 requests";
    EXPECT_LT(again, 1.05);
    EXPECT_GT(scarce.occupancy, 0.7);
  }
}

}  // namespace
}  // namespace tandem::scheduler_pressure_test
