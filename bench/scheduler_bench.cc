// What one step of planning costs: 256 sequences decode, 1000 wait, and in every step some end,
// others are admitted and new ones arrive. Twice: with blocks for all, and with blocks for half and
// outputs that turn from short to long and back, so that more is admitted than fits and preempted.
//   scheduler_bench [--steps N] [--json FILE]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/result.h"
#include "nlohmann/json.hpp"
#include "scheduler/scheduler.h"

namespace tandem {
namespace {

constexpr int kRunning = 256;
constexpr int kWaiting = 1000;
constexpr int kEndingPerStep = 4;
constexpr int32_t kBlockTokens = 16;
constexpr int32_t kPromptTokens = 64;
constexpr int32_t kTotalTokens = 256;
constexpr int kTenants = 8;
constexpr int kPeriod = 200;  // steps

// What a store answers from: a table of its sequences, the length and the holders of each block.
class Store final : public CacheView {
 public:
  explicit Store(int32_t blocks) : free_(blocks) {}

  void Know(SequenceId id) { tables_[id]; }
  void Grow(SequenceId id, int32_t tokens) {
    std::vector<int32_t>& holders = tables_.at(id);
    const size_t blocks = Blocks(tokens);
    free_ -= static_cast<int32_t>(blocks - holders.size());
    holders.resize(blocks, 1);
  }
  void GiveBack(SequenceId id) {
    std::vector<int32_t>& holders = tables_.at(id);
    free_ += static_cast<int32_t>(holders.size());
    holders.clear();
  }
  void Forget(SequenceId id) {
    GiveBack(id);
    tables_.erase(id);
  }

  int32_t AvailableBlocks() const override { return free_; }
  int32_t BlocksToReach(SequenceId id, int32_t end) const override {
    const std::vector<int32_t>& holders = tables_.at(id);
    const bool copies = !holders.empty() && holders.back() > 1;
    return static_cast<int32_t>(Blocks(end) - holders.size()) + (copies ? 1 : 0);
  }
  int32_t BlocksFreedBy(SequenceId id) const override {
    const std::vector<int32_t>& holders = tables_.at(id);
    return static_cast<int32_t>(std::count(holders.begin(), holders.end(), 1));
  }
  std::optional<int32_t> BlocksToSwapOut(SequenceId id) const override { return BlocksFreedBy(id); }
  int32_t BlocksToSwapIn(SequenceId id) const override { return BlocksFreedBy(id); }
  CachedPrefix Prefix(SequenceId id) const override {
    TANDEM_CHECK(tables_.contains(id), "the view is asked for a sequence that it does not know");
    return {};
  }

 private:
  static size_t Blocks(int32_t tokens) {
    return static_cast<size_t>((tokens + kBlockTokens - 1) / kBlockTokens);
  }

  int32_t free_;
  absl::flat_hash_map<SequenceId, std::vector<int32_t>> tables_;
};

enum class Outputs : uint8_t { kShort, kShortAndLong };

class Load {
 public:
  Load(int32_t blocks, Outputs kinds)
      : kinds_(kinds),
        scheduler_({.max_step_tokens = kRunning + kEndingPerStep * kPromptTokens,
                    .max_sequences = kRunning,
                    .max_waiting = 2 * kWaiting,
                    .total_blocks = blocks,
                    .block_tokens = kBlockTokens},
                   latency_),
        store_(blocks) {
    // Outputs that end at once: the scheduler admits as many as it may.
    for (int i = 0; i < kRunning; ++i) {
      Arrive();
      Step();
      scheduler_.Finish(SequenceId(next_id_ - 1));
      store_.Forget(SequenceId(next_id_ - 1));
    }
    while (scheduler_.stats().waiting < kWaiting) Arrive();
    for (int i = 0; i < 2 * kRunning; ++i) {
      Turnover();
      Step();
    }
  }

  // Nanoseconds of Plan and Advance.
  int64_t Step() {
    const auto begin = std::chrono::steady_clock::now();
    plan_ = scheduler_.Plan(now_, store_);
    const auto planned = std::chrono::steady_clock::now();
    for (const Preemption& one : plan_.preempted) store_.GiveBack(one.id);
    for (const PrefillChunk& one : plan_.prefills) store_.Grow(one.id, one.begin + one.count);
    for (SequenceId id : plan_.decodes) store_.Grow(id, ++known_[id]);
    for (const PrefillChunk& one : plan_.prefills) known_[one.id] = one.begin + one.count;
    const auto executed = std::chrono::steady_clock::now();
    scheduler_.Advance(plan_);
    const auto end = std::chrono::steady_clock::now();
    now_ += std::chrono::milliseconds(10);
    using std::chrono::nanoseconds;
    return std::chrono::duration_cast<nanoseconds>((planned - begin) + (end - executed)).count();
  }

  // Nanoseconds of the Finish and Enqueue calls of one step.
  int64_t Turnover() {
    const bool short_outputs = kinds_ == Outputs::kShort || (++turnovers_ / kPeriod) % 2 == 0;
    int64_t took = 0;
    std::vector<SequenceId> ending;
    for (size_t i = 0; i < plan_.decodes.size(); ++i) {
      const SequenceId id = plan_.decodes[i];
      const bool at_end = known_[id] + 1 >= kTotalTokens;
      if (at_end || (short_outputs && ending.size() < kEndingPerStep && i % 50 == 0))
        ending.push_back(id);
    }
    for (SequenceId id : ending) {
      took += Timed([&] { scheduler_.Finish(id); });
      store_.Forget(id);
      known_.erase(id);
    }
    while (scheduler_.stats().waiting < kWaiting) took += Arrive();
    return took;
  }

  SchedulerStats stats() const { return scheduler_.stats(); }

 private:
  template <typename Call>
  static int64_t Timed(Call call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
  }

  int64_t Arrive() {
    const uint64_t id = next_id_++;
    store_.Know(SequenceId(id));
    return Timed([&] {
      const absl::Status status = scheduler_.Enqueue({.id = SequenceId(id),
                                                      .prompt_tokens = kPromptTokens,
                                                      .max_total_tokens = kTotalTokens,
                                                      .priority = static_cast<int32_t>(id % 3),
                                                      .deadline = now_ + std::chrono::hours(1),
                                                      .tenant = id % kTenants},
                                                     now_);
      TANDEM_CHECK(status.ok(), "the queue is larger than what arrives");
    });
  }

  const Outputs kinds_;
  int64_t turnovers_ = 0;
  StepLearner latency_;
  Scheduler scheduler_;
  Store store_;
  StepPlan plan_;
  absl::flat_hash_map<SequenceId, int32_t> known_;
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

nlohmann::json Measure(int steps, int32_t blocks, Outputs outputs) {
  Load load(blocks, outputs);
  const uint64_t preempted_before = load.stats().preempted_recompute;
  std::vector<int64_t> plan_ns;
  std::vector<int64_t> turnover_ns;
  int64_t running = 0;
  for (int i = 0; i < steps; ++i) {
    turnover_ns.push_back(load.Turnover());
    plan_ns.push_back(load.Step());
    running += load.stats().running;
  }
  const SchedulerStats stats = load.stats();
  return {{"blocks", blocks},
          {"mean_running", static_cast<double>(running) / steps},
          {"waiting", stats.waiting},
          {"preempted_per_step",
           static_cast<double>(stats.preempted_recompute - preempted_before) / steps},
          {"plan_and_advance", Percentiles(plan_ns)},
          {"finish_and_enqueue", Percentiles(turnover_ns)}};
}

absl::Status Run(int steps, const std::string& json_path) {
  constexpr int32_t kEnough = kRunning * kTotalTokens / kBlockTokens;
  const nlohmann::json result = {
      {"bench", "scheduler"},
      {"steps", steps},
      {"ending_per_step", kEndingPerStep},
      {"tenants", kTenants},
      {"blocks_for_all", Measure(steps, kEnough, Outputs::kShort)},
      {"blocks_short", Measure(steps, kEnough / 2, Outputs::kShortAndLong)}};
  std::puts(result.dump(2).c_str());
  return WriteJson(result, json_path);
}

absl::Status Main(int argc, char** argv) {
  int32_t steps = 20000;
  std::string json_path;
  FlagParser parser;
  parser.Count("--steps", steps);
  parser.Text("--json", json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  return Run(steps, json_path);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("scheduler_bench", tandem::Main(argc, argv));
}
