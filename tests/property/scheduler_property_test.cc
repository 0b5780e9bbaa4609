// Random traces of requests through the scheduler, against what it promises.
#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/scheduler.h"

namespace tandem {
namespace {

constexpr int kTraces = 3000;
constexpr int kSteps = 60;  // in which requests still come
constexpr int kMaxDrainSteps = 20000;

struct Tracked {
  SequenceSpec spec;
  uint64_t order = 0;
  int32_t computed = 0;
  int32_t decoded = 0;
  int32_t steps_without_decode = 0;
  bool admitted = false;
  bool running = false;
  bool reserved = false;

  int32_t outputs() const { return spec.max_total_tokens - spec.prompt_tokens; }
};

// Plays the engine: executes plans, counts, and checks each plan against its own books.
class Trace {
 public:
  explicit Trace(uint64_t seed) : random_(seed), options_(RandomOptions()), scheduler_(options_) {}

  void Run() {
    for (int step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) {
      Arrivals();
      Cancellations();
      Step();
    }
    int steps = 0;
    while (!known_.empty() && !::testing::Test::HasFailure()) {
      ASSERT_LT(++steps, kMaxDrainSteps) << known_.size() << " requests never end";
      ActivateAll();
      Step();
    }
    const SchedulerStats stats = scheduler_.stats();
    EXPECT_EQ(stats.promised_blocks, 0);
    EXPECT_EQ(stats.waiting + stats.prefilling + stats.running + stats.parked, 0);
    EXPECT_EQ(stats.waiting_prompt_tokens, 0);
    EXPECT_EQ(scheduler_.NextDeadline(), kNoDeadline);
  }

 private:
  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  SchedulerOptions RandomOptions() {
    return {.max_step_tokens = Pick(1, 64),
            .max_prefill_chunk = Pick(0, 1) * Pick(1, 40),
            .max_sequences = Pick(1, 24),
            .max_waiting = Pick(1, 40),
            .total_blocks = Pick(1, 60),
            .block_tokens = 8};
  }

  void Arrivals() {
    for (int count = Pick(0, 3); count > 0; --count) {
      SequenceSpec spec = {
          .id = SequenceId(next_id_++), .prompt_tokens = Pick(1, 90), .priority = Pick(0, 2)};
      spec.max_total_tokens = spec.prompt_tokens + Pick(1, 12);
      if (Pick(0, 3) == 0) spec.deadline = now_ + std::chrono::milliseconds(Pick(0, 80));
      const bool reserve = Pick(0, 3) == 0;
      const absl::Status status = reserve ? scheduler_.Reserve(spec) : scheduler_.Enqueue(spec);
      if (!status.ok()) {
        EXPECT_FALSE(scheduler_.Contains(spec.id));
        continue;
      }
      Tracked tracked{.spec = spec, .order = next_id_, .admitted = reserve, .reserved = reserve};
      if (reserve) tracked.computed = spec.prompt_tokens;
      known_[spec.id] = tracked;
    }
  }

  void Cancellations() {
    if (known_.empty() || Pick(0, 9) > 0) return;
    auto place = known_.begin();
    std::advance(place, Pick(0, static_cast<int32_t>(known_.size()) - 1));
    scheduler_.Finish(place->first);
    known_.erase(place);
  }

  // A reservation becomes a request, which may need less.
  void PassOnOne() {
    const auto place = std::find_if(known_.begin(), known_.end(), [](const auto& entry) {
      return entry.second.reserved && !entry.second.running;
    });
    if (place == known_.end()) return;
    const SequenceId parked = place->first;
    Tracked heir = place->second;
    known_.erase(place);
    heir.spec.id = SequenceId(next_id_++);
    heir.spec.max_total_tokens = Pick(heir.spec.prompt_tokens + 1, heir.spec.max_total_tokens);
    scheduler_.PassOn(parked, heir.spec);
    known_[heir.spec.id] = heir;
  }

  void ActivateAll() {
    for (auto& [id, tracked] : known_) {
      if (!tracked.reserved || tracked.running) continue;
      scheduler_.Activate(id);
      tracked.running = true;
    }
  }

  void Step() {
    if (Pick(0, 3) == 0) PassOnOne();
    for (auto& [id, tracked] : known_) {
      if (!tracked.reserved || tracked.running || Pick(0, 3) > 0) continue;
      scheduler_.Activate(id);
      tracked.running = true;
    }
    const int running = Running();
    const StepPlan plan = scheduler_.Plan(now_);
    CheckExpired(plan);
    CheckDecodes(plan, running);
    CheckAdmitted(plan);
    CheckPrefills(plan);
    scheduler_.Advance(plan);
    Execute(plan);
    const absl::Status invariants = scheduler_.CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
    now_ += std::chrono::milliseconds(1);
  }

  int Running() const {
    return static_cast<int>(std::count_if(known_.begin(), known_.end(),
                                          [](const auto& entry) { return entry.second.running; }));
  }

  int32_t Blocks(const SequenceSpec& spec) const {
    return (spec.max_total_tokens + options_.block_tokens - 1) / options_.block_tokens;
  }

  void CheckExpired(const StepPlan& plan) {
    for (SequenceId id : plan.expired) {
      ASSERT_TRUE(known_.contains(id));
      EXPECT_LE(known_.at(id).spec.deadline, now_);
      known_.erase(id);
    }
    for (const auto& [id, tracked] : known_) EXPECT_GT(tracked.spec.deadline, now_);
  }

  void CheckDecodes(const StepPlan& plan, int running_before) {
    const int running = Running();
    EXPECT_LE(running, running_before);
    const int expected = std::min(running, options_.max_step_tokens);
    EXPECT_EQ(static_cast<int>(plan.decodes.size()), expected);
    const std::set<SequenceId> decoded(plan.decodes.begin(), plan.decodes.end());
    EXPECT_EQ(decoded.size(), plan.decodes.size());
    // In a round of ceil(running / budget) steps each has its turn; those that leave and come in
    // between move a turn by one round at most.
    const int round = options_.max_sequences / options_.max_step_tokens + 1;
    for (auto& [id, tracked] : known_) {
      if (!tracked.running) continue;
      tracked.steps_without_decode = decoded.contains(id) ? 0 : tracked.steps_without_decode + 1;
      EXPECT_LE(tracked.steps_without_decode, 2 * round);
    }
    for (SequenceId id : plan.decodes) EXPECT_TRUE(known_.at(id).running);
  }

  static bool Precedes(const Tracked& a, const Tracked& b) {
    if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
    return a.order < b.order;
  }

  void CheckAdmitted(const StepPlan& plan) {
    for (SequenceId id : plan.admitted) known_.at(id).admitted = true;
    int32_t promised = 0;
    int admitted = 0;
    for (const auto& [id, tracked] : known_) {
      promised += tracked.admitted ? Blocks(tracked.spec) : 0;
      admitted += tracked.admitted ? 1 : 0;
    }
    EXPECT_EQ(promised, scheduler_.stats().promised_blocks);
    EXPECT_LE(promised, options_.total_blocks);
    EXPECT_LE(admitted, options_.max_sequences);
    // Nobody who waits precedes somebody who was admitted just now.
    for (const auto& [id, waiting] : known_) {
      if (waiting.admitted) continue;
      for (SequenceId other : plan.admitted) EXPECT_TRUE(Precedes(known_.at(other), waiting));
    }
  }

  void CheckPrefills(const StepPlan& plan) {
    int32_t tokens = static_cast<int32_t>(plan.decodes.size());
    for (size_t i = 0; i < plan.prefills.size(); ++i) {
      const PrefillChunk& chunk = plan.prefills[i];
      const Tracked& tracked = known_.at(chunk.id);
      tokens += chunk.count;
      EXPECT_TRUE(tracked.admitted);
      EXPECT_EQ(chunk.begin, tracked.computed);
      EXPECT_GT(chunk.count, 0);
      EXPECT_EQ(chunk.last, chunk.begin + chunk.count == tracked.spec.prompt_tokens);
      if (options_.max_prefill_chunk > 0) {
        EXPECT_LE(chunk.count, options_.max_prefill_chunk);
      }
      if (i > 0) {
        EXPECT_TRUE(Precedes(known_.at(plan.prefills[i - 1].id), tracked));
      }
    }
    EXPECT_LE(tokens, options_.max_step_tokens);
    if (tokens < options_.max_step_tokens) CheckNoWorkLeftOut(plan);
  }

  // Budget is left: all that were admitted prefill, and the head of the queue has no room.
  void CheckNoWorkLeftOut(const StepPlan& plan) {
    const Tracked* head = nullptr;
    size_t prefilling = 0;
    int admitted = 0;
    for (const auto& [id, tracked] : known_) {
      admitted += tracked.admitted ? 1 : 0;
      if (tracked.admitted && tracked.computed < tracked.spec.prompt_tokens) ++prefilling;
      if (!tracked.admitted && (head == nullptr || Precedes(tracked, *head))) head = &tracked;
    }
    EXPECT_EQ(plan.prefills.size(), prefilling);
    if (head == nullptr) return;
    const int32_t promised = scheduler_.stats().promised_blocks;
    EXPECT_TRUE(admitted == options_.max_sequences ||
                promised + Blocks(head->spec) > options_.total_blocks);
  }

  void Execute(const StepPlan& plan) {
    for (const PrefillChunk& chunk : plan.prefills) {
      Tracked& tracked = known_.at(chunk.id);
      tracked.computed += chunk.count;
      tracked.running = chunk.last;
      if (chunk.last) CountOutput(chunk.id);
    }
    for (SequenceId id : plan.decodes) CountOutput(id);
  }

  void CountOutput(SequenceId id) {
    Tracked& tracked = known_.at(id);
    if (++tracked.decoded < tracked.outputs()) return;
    scheduler_.Finish(id);
    known_.erase(id);
  }

  std::mt19937_64 random_;
  const SchedulerOptions options_;
  Scheduler scheduler_;
  std::map<SequenceId, Tracked> known_;
  TimePoint now_ = TimePoint(std::chrono::seconds(1));
  uint64_t next_id_ = 1;
};

TEST(SchedulerProperty, RandomTracesKeepEveryPromise) {
  for (uint64_t seed = 1; seed <= kTraces && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Trace(seed).Run();
  }
}

}  // namespace
}  // namespace tandem
