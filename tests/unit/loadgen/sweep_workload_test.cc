#include "bench/serving/sweep_workload.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "bench/serving/workload.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::sweep_workload_test {
namespace {

using ::testing::HasSubstr;

constexpr SweepLoad kLoad = {.context_tokens = 1024, .rate = 10, .requests = 1600, .seed = 1};

Schedule Make(std::string_view workload, const SweepLoad& load = kLoad) {
  auto schedule = MakeSweepSchedule(workload, load);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *std::move(schedule);
}

double MeanPrompt(const Schedule& schedule, size_t from, size_t to) {
  double tokens = 0;
  for (size_t i = from; i < to; ++i) tokens += schedule.requests[i].prompt_tokens();
  return tokens / static_cast<double>(to - from);
}

// The variance of the gaps over the square of their mean: 1 for a Poisson process.
double GapVariance(const Schedule& schedule) {
  double sum = 0;
  double squares = 0;
  const size_t count = schedule.requests.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    const double gap = ToMilliseconds(schedule.requests[i + 1].at - schedule.requests[i].at);
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / static_cast<double>(count);
  return (squares / static_cast<double>(count) - mean * mean) / (mean * mean);
}

TEST(SweepWorkloadTest, DependsOnTheLoadAlone) {
  std::set<uint64_t> hashes;
  for (const SweepWorkload& workload : SweepWorkloads()) {
    const Schedule schedule = Make(workload.name);
    EXPECT_EQ(schedule.requests.size(), 1600u);
    EXPECT_EQ(schedule.Hash(), Make(workload.name).Hash()) << workload.name;
    SweepLoad other = kLoad;
    other.seed = 2;
    hashes.insert({schedule.Hash(), Make(workload.name, other).Hash()});
    other = kLoad;
    other.rate = 20;
    hashes.insert(Make(workload.name, other).Hash());
  }
  EXPECT_EQ(hashes.size(), 3 * SweepWorkloads().size());
}

TEST(SweepWorkloadTest, EveryRequestFitsIntoTheContextAndComesAtTheRate) {
  for (const SweepWorkload& workload : SweepWorkloads()) {
    for (const int32_t context : {64, 1024}) {
      SweepLoad load = kLoad;
      load.context_tokens = context;
      const Schedule schedule = Make(workload.name, load);
      EXPECT_TRUE(CheckFits(schedule, context).ok()) << workload.name;
      const double rate = 1600 / (ToMilliseconds(schedule.Length()) / 1e3);
      EXPECT_NEAR(rate / kLoad.rate, 1, 0.15) << workload.name;
    }
  }
}

TEST(SweepWorkloadTest, AnUnknownOneIsRefusedWithTheKnownOnes) {
  const absl::Status status = MakeSweepSchedule("huge", kLoad).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("huge"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("long-context, shared-prefix, agentic"));
}

TEST(SweepWorkloadTest, MixedLiesBetweenShortAndLong) {
  const double of_short = MeanPrompt(Make("short"), 0, 1600);
  const double of_long = MeanPrompt(Make("long"), 0, 1600);
  EXPECT_NEAR(MeanPrompt(Make("mixed"), 0, 1600), (of_short + of_long) / 2, 0.05 * of_long);
  EXPECT_GT(of_long, 4 * of_short);
}

TEST(SweepWorkloadTest, BurstyComesInBurstsAndTheOthersAsPoissonProcesses) {
  EXPECT_NEAR(GapVariance(Make("bursty")), 4, 1);
  EXPECT_NEAR(GapVariance(Make("mixed")), 1, 0.2);
  EXPECT_NEAR(GapVariance(Make("agentic")), 1, 0.2);
}

TEST(SweepWorkloadTest, ShiftingChangesFromLongPromptsToLongOutputsAndBack) {
  const Schedule schedule = Make("shifting");
  for (size_t phase = 0; phase + 1 < 8; phase += 2) {
    const size_t begin = phase * 200;
    EXPECT_GT(MeanPrompt(schedule, begin, begin + 200),
              8 * MeanPrompt(schedule, begin + 200, begin + 400));
    EXPECT_LT(schedule.requests[begin].output_tokens, schedule.requests[begin + 200].output_tokens);
  }
}

TEST(SweepWorkloadTest, SharedPrefixHasEightOfThem) {
  std::map<uint64_t, int> uses;
  for (const ScheduledRequest& request : Make("shared-prefix").requests) {
    ASSERT_EQ(request.prompt.size(), 2u);
    EXPECT_EQ(request.prompt[0].tokens, 256);
    ++uses[request.prompt[0].seed];
  }
  EXPECT_EQ(uses.size(), 8u);
}

TEST(SweepWorkloadTest, AgentsRepeatWhatWasSaidBefore) {
  int64_t repeated = 0;
  int64_t all = 0;
  size_t most_turns = 0;
  std::set<uint64_t> seen;
  for (const ScheduledRequest& request : Make("agentic").requests) {
    most_turns = std::max(most_turns, request.prompt.size() - 1);
    bool known = true;  // a prefix is cached up to its first new part
    for (const PromptSegment& segment : request.prompt) {
      known = !seen.insert(segment.seed).second && known;
      if (known) repeated += segment.tokens;
      all += segment.tokens;
    }
  }
  EXPECT_EQ(most_turns, 8u);
  EXPECT_GT(static_cast<double>(repeated), 0.8 * static_cast<double>(all));
}

}  // namespace
}  // namespace tandem::loadgen::sweep_workload_test
