// What one step of planning costs: 256 sequences decode, 1000 wait, and in every step some end,
// others are admitted and new ones arrive.
//   scheduler_bench [--steps N] [--json FILE]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "nlohmann/json.hpp"
#include "scheduler/scheduler.h"

namespace tandem {
namespace {

constexpr int kRunning = 256;
constexpr int kWaiting = 1000;
constexpr int kEndingPerStep = 4;
constexpr int32_t kPromptTokens = 64;
constexpr int32_t kTotalTokens = 256;

class Load {
 public:
  Load()
      : scheduler_({.max_step_tokens = kRunning + kEndingPerStep * kPromptTokens,
                    .max_sequences = kRunning,
                    .max_waiting = kWaiting + kEndingPerStep,
                    .total_blocks = kRunning * kTotalTokens / 16,
                    .block_tokens = 16}) {
    for (int i = 0; i < kRunning + kWaiting; ++i) {
      if (i >= kWaiting) Step();
      Arrive();
    }
    while (scheduler_.stats().running < kRunning) Step();
    while (scheduler_.stats().waiting < kWaiting) Arrive();
  }

  // Nanoseconds of Plan and Advance.
  int64_t Step() {
    const auto begin = std::chrono::steady_clock::now();
    const StepPlan plan = scheduler_.Plan(now_);
    scheduler_.Advance(plan);
    const auto end = std::chrono::steady_clock::now();
    now_ += std::chrono::milliseconds(10);
    last_ = plan;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
  }

  // Nanoseconds of the Finish and Enqueue calls of one step.
  int64_t Turnover() {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kEndingPerStep; ++i) {
      scheduler_.Finish(last_.decodes[(i * 61) % last_.decodes.size()]);
      Arrive();
    }
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
  }

  SchedulerStats stats() const { return scheduler_.stats(); }

 private:
  void Arrive() {
    const uint64_t id = next_id_++;
    const absl::Status status = scheduler_.Enqueue({.id = SequenceId(id),
                                                    .prompt_tokens = kPromptTokens,
                                                    .max_total_tokens = kTotalTokens,
                                                    .priority = static_cast<int32_t>(id % 3),
                                                    .deadline = now_ + std::chrono::hours(1)});
    TANDEM_CHECK(status.ok(), "the queue is larger than what arrives");
  }

  Scheduler scheduler_;
  StepPlan last_;
  TimePoint now_ = TimePoint(std::chrono::seconds(1));
  uint64_t next_id_ = 1;
};

nlohmann::json Percentiles(std::vector<int64_t> nanoseconds) {
  std::sort(nanoseconds.begin(), nanoseconds.end());
  const auto at = [&](double share) {
    return static_cast<double>(nanoseconds[static_cast<size_t>(share * (nanoseconds.size() - 1))]) /
           1e3;
  };
  return {{"median_us", at(0.5)}, {"p99_us", at(0.99)}, {"max_us", at(1.0)}};
}

int Run(int steps, const std::string& json_path) {
  Load load;
  std::vector<int64_t> plan_ns;
  std::vector<int64_t> turnover_ns;
  for (int i = 0; i < steps; ++i) {
    turnover_ns.push_back(load.Turnover());
    plan_ns.push_back(load.Step());
  }
  const SchedulerStats stats = load.stats();
  const nlohmann::json result = {{"bench", "scheduler"},
                                 {"steps", steps},
                                 {"running", stats.running},
                                 {"waiting", stats.waiting},
                                 {"ending_per_step", kEndingPerStep},
                                 {"plan_and_advance", Percentiles(plan_ns)},
                                 {"finish_and_enqueue", Percentiles(turnover_ns)}};
  std::puts(result.dump(2).c_str());
  if (!json_path.empty()) std::ofstream(json_path) << result.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  int steps = 20000;
  std::string json_path;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--steps") steps = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--json") json_path = argv[i + 1];
  }
  return tandem::Run(steps, json_path);
}
