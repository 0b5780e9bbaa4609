#include "bench/serving/workload.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "bench/serving/prompt.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::workload_test {
namespace {

using ::testing::HasSubstr;

WorkloadOptions Mixed() {
  WorkloadOptions options;
  options.num_prompts = 200;
  options.input = *ParseLength("--input-len", "lognormal:100,1");
  options.output = *ParseLength("--output-len", "uniform:1,64");
  options.cancel_share = 0.1;
  options.cancel_delay = std::chrono::milliseconds(5);
  return options;
}

Schedule Make(const WorkloadOptions& options, uint64_t seed, double rate = 10) {
  auto schedule = MakeSchedule(options, ArrivalOptions{.rate = rate}, seed);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *std::move(schedule);
}

// Text in a file that is gone when the object is.
class TraceFile {
 public:
  explicit TraceFile(const std::string& text)
      : path_(testing::TempDir() + "loadgen_trace_" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
  }
  ~TraceFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(WorkloadTest, EqualSeedsGiveEqualHashesAndOthersDoNot) {
  const Schedule schedule = Make(Mixed(), 1);
  EXPECT_EQ(schedule.Hash(), Make(Mixed(), 1).Hash());
  EXPECT_EQ(schedule.HashText().size(), 16u);
  std::set<uint64_t> hashes = {schedule.Hash(), Make(Mixed(), 2).Hash(),
                               Make(Mixed(), 1, 11).Hash()};
  WorkloadOptions other = Mixed();
  other.output = *ParseLength("--output-len", "uniform:1,65");
  hashes.insert(Make(other, 1).Hash());
  other = Mixed();
  other.cancel_share = 0.2;
  hashes.insert(Make(other, 1).Hash());
  other = Mixed();
  other.prefix_tokens = 8;
  hashes.insert(Make(other, 1).Hash());
  EXPECT_EQ(hashes.size(), 6u);
}

// Results quote the hash: when it changes, those of an older build cannot be compared any more.
TEST(WorkloadTest, TheHashOfASeedIsTheSameInEveryBuild) {
  WorkloadOptions options;
  options.num_prompts = 3;
  options.input = *ParseLength("--input-len", "16");
  options.output = *ParseLength("--output-len", "4");
  EXPECT_EQ(MakeSchedule(options, ArrivalOptions{}, 0)->HashText(), "ec434815b4e2f813");
}

TEST(WorkloadTest, ArrivalsDoNotChangeWhatIsAsked) {
  const Schedule slow = Make(Mixed(), 1, 1);
  const Schedule fast = Make(Mixed(), 1, 100);
  for (size_t i = 0; i < slow.requests.size(); ++i) {
    EXPECT_GT(slow.requests[i].at, fast.requests[i].at);
    EXPECT_EQ(slow.requests[i].output_tokens, fast.requests[i].output_tokens);
    EXPECT_EQ(slow.requests[i].prompt[0].seed, fast.requests[i].prompt[0].seed);
    EXPECT_EQ(slow.requests[i].cancel_after, fast.requests[i].cancel_after);
  }
}

TEST(WorkloadTest, TheWantedShareIsCancelled) {
  WorkloadOptions options = Mixed();
  options.num_prompts = 10000;
  int cancelled = 0;
  for (const ScheduledRequest& request : Make(options, 1).requests) {
    if (request.cancel_after) {
      ++cancelled;
      EXPECT_EQ(*request.cancel_after, options.cancel_delay);
    }
  }
  EXPECT_NEAR(cancelled, 1000, 150);
}

TEST(WorkloadTest, PrefixesAreSharedAndTheRestIsNot) {
  WorkloadOptions options;
  options.num_prompts = 100;
  options.input = *ParseLength("--input-len", "20");
  options.prefix_tokens = 30;
  options.num_prefixes = 3;
  const std::vector<int32_t> pool = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  std::set<std::vector<int32_t>> prefixes;
  std::set<std::vector<int32_t>> suffixes;
  for (const ScheduledRequest& request : Make(options, 4).requests) {
    const std::vector<int32_t> tokens = MakePromptTokens(request, pool);
    ASSERT_EQ(tokens.size(), 50u);
    prefixes.insert({tokens.begin(), tokens.begin() + 30});
    suffixes.insert({tokens.begin() + 30, tokens.end()});
  }
  EXPECT_EQ(prefixes.size(), 3u);
  EXPECT_EQ(suffixes.size(), 100u);
}

TEST(WorkloadTest, PromptsOfATraceShareTheBlocksOfEqualHashIds) {
  const TraceFile file(
      "{\"timestamp\":0,\"input_length\":40,\"output_length\":5,\"hash_ids\":[1,2,3]}\n"
      "{\"timestamp\":3,\"input_length\":48,\"output_length\":9,\"hash_ids\":[1,2,4]}\n"
      "{\"timestamp\":3,\"input_length\":40,\"output_length\":9,\"hash_ids\":[1]}\n");
  WorkloadOptions options;
  options.trace = TraceFormat::kBailian;
  options.trace_path = file.path();
  options.replay_speedup = 2;
  options.max_output = 7;
  const auto schedule = MakeSchedule(options, std::nullopt, 0);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  ASSERT_EQ(schedule->requests.size(), 3u);
  EXPECT_EQ(schedule->requests[1].at, std::chrono::milliseconds(1500));
  EXPECT_EQ(schedule->requests[0].output_tokens, 5);
  EXPECT_EQ(schedule->requests[1].output_tokens, 7);
  std::vector<int32_t> pool;
  for (int32_t id = 100; id < 200; ++id) pool.push_back(id);
  std::vector<std::vector<int32_t>> prompts;
  for (const ScheduledRequest& request : schedule->requests) {
    prompts.push_back(MakePromptTokens(request, pool));
  }
  ASSERT_EQ(prompts[0].size(), 40u);
  ASSERT_EQ(prompts[1].size(), 48u);
  const auto shared = [&](int a, int b) {
    size_t equal = 0;
    while (equal < prompts[a].size() && equal < prompts[b].size() &&
           prompts[a][equal] == prompts[b][equal]) {
      ++equal;
    }
    return equal;
  };
  // One more token may be equal by chance.
  EXPECT_GE(shared(0, 1), 32u);
  EXPECT_LE(shared(0, 1), 33u);
  EXPECT_GE(shared(0, 2), 16u);
  EXPECT_LE(shared(0, 2), 17u);
}

TEST(WorkloadTest, ATraceMayArriveAtAnotherRate) {
  const TraceFile file("Timestamp,Request tokens,Response tokens\n0,5,5\n1000,6,6\n");
  WorkloadOptions options;
  options.trace = TraceFormat::kBurstGpt;
  options.trace_path = file.path();
  const auto schedule = MakeSchedule(options, ArrivalOptions{.rate = 100}, 0);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_LT(schedule->Length(), std::chrono::seconds(1));
  EXPECT_EQ(schedule->requests[1].prompt_tokens(), 6);
}

TEST(WorkloadTest, RequestsBeyondTheContextAreCountedAndRefused) {
  const absl::Status status = CheckFits(Make(Mixed(), 1), 150);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("context of 150 tokens"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-input-len"));
  WorkloadOptions cut = Mixed();
  cut.max_input = 100;
  cut.max_output = 50;
  EXPECT_TRUE(CheckFits(Make(cut, 1), 150).ok());
}

TEST(WorkloadTest, WrongOptionsAreRefusedWithTheirFlagAndValue) {
  const auto refused = [](auto change, const std::string& text) {
    WorkloadOptions options;
    change(options);
    const absl::Status status = Validate(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused([](auto& options) { options.num_prompts = 0; }, "--num-prompts=0");
  refused([](auto& options) { options.replay_speedup = -2; }, "--replay-speedup=-2");
  refused([](auto& options) { options.replay_speedup = std::nan(""); }, "--replay-speedup=nan");
  refused([](auto& options) { options.prefix_tokens = -1; }, "--random-prefix-len=-1");
  refused([](auto& options) { options.num_prefixes = 0; }, "--num-prefixes=0");
  refused([](auto& options) { options.max_input = 0; }, "--max-input-len=0");
  refused([](auto& options) { options.max_output = -3; }, "--max-output-len=-3");
  refused([](auto& options) { options.cancel_share = 1.5; }, "--request-cancellation-rate=150");
  EXPECT_TRUE(Validate(WorkloadOptions{}).ok());
}

}  // namespace
}  // namespace tandem::loadgen::workload_test
