// Random traces of requests through the scheduler, over a naive model of the KV store, keep every
// promise of the scheduler. TANDEM_SEED=n replays one trace; TANDEM_TRACES=n tries that many.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "scheduler/scheduler.h"
#include "tests/unit/scheduler/fake_engine.h"

namespace tandem::scheduler_property_test {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kTraces = 40'000;  // unless TANDEM_TRACES says how many
constexpr int kArrivalSteps = 10;
constexpr int kMaxDrainSteps = 5000;

// How often each event happened in all traces. An event that never happens is not tested.
struct Coverage {
  int64_t requests = 0, finished = 0, steps = 0, recomputed = 0, swapped = 0, swap_ins = 0;
  int64_t failed_swaps = 0, restores = 0, hits = 0, forks = 0, expired = 0, aged = 0, idle = 0;
};

// The test's record of a request beside that of the FakeEngine.
struct Request {
  uint64_t order = 0;
  int32_t outputs = 1;  // it ends after so many
  bool forks = false;   // when its prompt was computed
  bool moves = false;   // then it is parked, and ends some time later
  TimePoint waits_since{};
  Duration waited{};
  bool aged = false;
  int32_t steps_without_decode = 0;
};

class Trace {
 public:
  Trace(uint64_t seed, Coverage& coverage)
      : random_(seed), coverage_(coverage), options_(RandomOptions()), engine_(options_, latency_) {
    engine_.blocks.set_host_blocks(Chance(4) ? 0 : Pick(1, 60));
    engine_.blocks.set_demotes(Chance(2));
    const int32_t copy = Pick(0, 3);  // not known, cheap (twice), dear
    for (int i = 1; i < 20 && copy > 0; ++i) {
      latency_.ObserveStep({.prefill_tokens = i, .prefill_pairs = i * i}, milliseconds(i));
      latency_.ObserveCopy(i, copy < 3 ? i * milliseconds(1) / 10 : i * milliseconds(100));
    }
  }

  void Run() {
    expects_short_ = Chance(3);
    if (expects_short_) ExpectShortOutputs();
    for (int step = 0; step < kArrivalSteps && !::testing::Test::HasFailure(); ++step) {
      Arrivals();
      if (Chance(8)) CancelOne();
      Step();
    }
    int steps = 0;
    while (!requests_.empty() && !::testing::Test::HasFailure()) {
      ASSERT_LT(++steps, kMaxDrainSteps) << requests_.size() << " requests never end";
      Step();
    }
    const SchedulerStats stats = engine_.scheduler.stats();
    EXPECT_EQ(stats.waiting + stats.prefilling + stats.running + stats.parked + stats.swapped, 0);
    EXPECT_EQ(stats.waiting_prompt_tokens, 0);
    EXPECT_EQ(engine_.scheduler.NextDeadline(), kNoDeadline);
    if (!engine_.blocks.restoring()) {
      EXPECT_EQ(engine_.blocks.AvailableBlocks(), options_.total_blocks);
    }
  }

 private:
  using Books = FakeEngine::Sequence;

  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  bool Chance(int32_t one_in) { return Pick(1, one_in) == 1; }

  SchedulerOptions RandomOptions() {
    return {
        .max_step_tokens = Pick(4, 64),
        .max_prefill_chunk = Pick(0, 1) * Pick(1, 40),
        .max_sequences = Pick(4, 20),
        .max_waiting = Pick(1, 30),
        .total_blocks = Pick(4, 50),
        .block_tokens = 4 << Pick(0, 1),
        .policy = Chance(2) ? SchedulingPolicyKind::kFair : SchedulingPolicyKind::kDeadline,
        .max_skips = Pick(0, 4),
        .max_wait = milliseconds(Pick(5, 60)),
    };
  }

  // Runs requests that end at once, so that the scheduler admits more than will fit.
  void ExpectShortOutputs() {
    const int32_t total = std::min(31, options_.total_blocks * options_.block_tokens);
    for (int i = 0; i < 20; ++i) {
      const SequenceId id(next_id_++);
      ASSERT_EQ(engine_.Enqueue({.id = id, .prompt_tokens = 1, .max_total_tokens = total}),
                absl::OkStatus());
      engine_.Execute(engine_.Plan());
      engine_.Finish(id);
    }
  }

  const Books& BooksOf(SequenceId id) const { return engine_.sequences.at(id); }

  std::vector<SequenceId> InPhase(Phase phase) const {
    std::vector<SequenceId> ids;
    for (const auto& [id, books] : engine_.sequences) {
      if (books.phase == phase) ids.push_back(id);
    }
    return ids;
  }

  void Arrivals() {
    for (int count = Pick(0, 3); count > 0; --count) {
      const bool reserve = Chance(5);
      SequenceSpec spec = {.id = SequenceId(next_id_++),
                           .prompt_tokens = Pick(1, 60),
                           .width = !reserve && Chance(4) ? Pick(2, 4) : 1,
                           .priority = Pick(0, 2) / 2,
                           .tenant = static_cast<uint64_t>(Pick(1, 3))};
      spec.max_total_tokens = spec.prompt_tokens + Pick(0, 30);
      if (Chance(6)) spec.deadline = engine_.now + milliseconds(Pick(0, 60));
      const absl::Status status =
          reserve ? engine_.Reserve(spec)
                  : engine_.Enqueue(spec, Chance(2) ? Pick(1, 2) : 0, Pick(1, 50));
      EXPECT_EQ(status.ok(), engine_.scheduler.Contains(spec.id));
      if (!status.ok()) continue;
      ++coverage_.requests;
      const int32_t outputs = spec.max_total_tokens + 1 - spec.prompt_tokens;
      requests_[spec.id] = {.order = next_order_++,
                            .outputs = expects_short_ || Chance(3) ? outputs : Pick(1, outputs),
                            .forks = spec.width > 1 && Chance(2),
                            .moves = spec.width == 1 && Chance(8),
                            .waits_since = engine_.now};
    }
  }

  void CancelOne() {
    if (requests_.empty()) return;
    auto place = requests_.begin();
    std::advance(place, Pick(0, static_cast<int32_t>(requests_.size()) - 1));
    End(place->first);
  }

  void End(SequenceId id) {
    engine_.Finish(id);
    requests_.erase(id);
  }

  // Events between two steps: KV arrives or leaves, copies end.
  void Surroundings() {
    for (SequenceId id : InPhase(Phase::kParked)) {
      if (!Chance(4)) continue;
      if (BooksOf(id).known > BooksOf(id).spec.prompt_tokens) {
        End(id);
      } else if (Chance(3)) {
        TransferTo(id);
      } else {
        engine_.Activate(id);
        CountOutput(id);
      }
    }
    for (SequenceId id : InPhase(Phase::kSwappingOut)) {
      if (Chance(2)) Chance(5) ? FailSwap(id) : engine_.EndSwapOut(id);
    }
    for (SequenceId id : InPhase(Phase::kSwappingIn)) {
      if (Chance(2)) Chance(5) ? FailSwap(id) : engine_.EndSwapIn(id);
    }
    if (Chance(3)) engine_.blocks.EndRestores();
  }

  void FailSwap(SequenceId id) {
    ++coverage_.failed_swaps;
    engine_.FailSwap(id);
    requests_.at(id).waits_since = engine_.now;
  }

  void TransferTo(SequenceId id) {
    SequenceSpec successor = BooksOf(id).spec;
    successor.id = SequenceId(next_id_++);
    successor.max_total_tokens = Pick(successor.prompt_tokens, successor.max_total_tokens);
    engine_.TransferTo(id, successor);
    Request request = requests_.at(id);
    request.outputs = 1;
    requests_.erase(id);
    requests_[successor.id] = request;
  }

  void Step() {
    for (auto& [id, request] : requests_) {
      const bool waits = BooksOf(id).phase == Phase::kWaiting;
      const Duration waited = request.waited + (engine_.now - request.waits_since);
      if (!waits || request.aged || waited <= options_.max_wait) continue;
      request.aged = true;
      ++coverage_.aged;
    }
    const StepPlan plan = engine_.Plan();
    CheckExpired(plan);
    CheckPreempted(plan);
    CheckDecodes(plan);
    CheckAdmitted(plan);
    CheckBudget(plan);
    CheckWorkConserved(plan);
    Execute(plan);
    Surroundings();
    ++coverage_.steps;
    engine_.now += milliseconds(1);
  }

  void CheckExpired(const StepPlan& plan) {
    for (SequenceId id : plan.expired) {
      EXPECT_LE(BooksOf(id).spec.deadline, engine_.now);
      requests_.erase(id);
    }
    for (const auto& [id, request] : requests_) EXPECT_GT(BooksOf(id).spec.deadline, engine_.now);
    coverage_.expired += static_cast<int64_t>(plan.expired.size());
  }

  bool Outranks(SequenceId a, SequenceId b) const {
    const SequenceSpec& left = BooksOf(a).spec;
    const SequenceSpec& right = BooksOf(b).spec;
    const Request& first = requests_.at(a);
    const Request& second = requests_.at(b);
    if (first.aged != second.aged) return first.aged;
    if (!first.aged && left.priority != right.priority) return left.priority > right.priority;
    const bool by_deadline = options_.policy == SchedulingPolicyKind::kDeadline && !first.aged;
    if (by_deadline && left.deadline != right.deadline) return left.deadline < right.deadline;
    return first.order != second.order ? first.order < second.order : a < b;
  }

  // Every preempted sequence ranks below all that stay.
  void CheckPreempted(const StepPlan& plan) {
    std::set<SequenceId> victims;
    for (const Preemption& one : plan.preempted) {
      const bool swap = one.how == Preemption::How::kSwap;
      EXPECT_TRUE(BooksOf(one.id).phase == Phase::kRunning ||
                  (BooksOf(one.id).phase == Phase::kPrefilling && !swap));
      victims.insert(one.id);
      ++(swap ? coverage_.swapped : coverage_.recomputed);
    }
    if (victims.empty()) return;
    for (Phase phase : {Phase::kRunning, Phase::kPrefilling}) {
      for (SequenceId id : InPhase(phase)) {
        if (victims.contains(id) || !requests_.contains(id)) continue;
        for (SequenceId victim : victims) EXPECT_TRUE(Outranks(id, victim));
      }
    }
  }

  // Every sequence decodes for which there are tokens and blocks, in turns.
  void CheckDecodes(const StepPlan& plan) {
    const std::set<SequenceId> decoded(plan.decodes.begin(), plan.decodes.end());
    EXPECT_EQ(decoded.size(), plan.decodes.size());
    int32_t blocks = 0;
    int32_t rows = 0;
    for (SequenceId id : InPhase(Phase::kRunning)) {
      blocks += engine_.blocks.BlocksToReach(id, BooksOf(id).known);
      rows += BooksOf(id).spec.width;
    }
    for (SequenceId id : decoded) EXPECT_EQ(BooksOf(id).phase, Phase::kRunning);
    if (blocks > engine_.blocks.AvailableBlocks()) return;
    EXPECT_TRUE(plan.preempted.empty() || plan.decodes.empty()) << "nothing was short";
    for (auto& [id, request] : requests_) {
      if (BooksOf(id).phase != Phase::kRunning) continue;
      const bool waits = !decoded.contains(id);
      EXPECT_TRUE(!waits || rows > options_.max_step_tokens);
      request.steps_without_decode = waits ? request.steps_without_decode + 1 : 0;
      EXPECT_LE(request.steps_without_decode, 2 * options_.max_sequences);
    }
  }

  // No sequence that waited too long is overtaken, unless it waits for a prefix.
  void CheckAdmitted(const StepPlan& plan) {
    std::set<SequenceId> admitted;
    for (const Admission& one : plan.admitted) {
      EXPECT_EQ(BooksOf(one.id).phase, Phase::kWaiting);
      EXPECT_LE(one.cached_tokens, engine_.blocks.Prefix(one.id).device_tokens);
      admitted.insert(one.id);
      coverage_.hits += one.cached_tokens > 0 ? 1 : 0;
    }
    coverage_.restores += static_cast<int64_t>(plan.restores.size());
    if (admitted.empty() || !plan.restores.empty()) return;
    for (const auto& [id, request] : requests_) {
      if (BooksOf(id).phase != Phase::kWaiting || !request.aged || admitted.contains(id)) continue;
      if (engine_.blocks.Prefix(id).pending) continue;
      for (SequenceId other : admitted)
        EXPECT_TRUE(Outranks(other, id)) << other.value() << ' ' << id.value();
    }
  }

  void CheckBudget(const StepPlan& plan) {
    int32_t tokens = 0;
    for (SequenceId id : plan.decodes) tokens += BooksOf(id).spec.width;
    std::set<SequenceId> seen;
    for (const PrefillChunk& chunk : plan.prefills) {
      tokens += chunk.count;
      EXPECT_GT(chunk.count, 0);
      EXPECT_TRUE(seen.insert(chunk.id).second);
      EXPECT_EQ(chunk.last, chunk.begin + chunk.count == BooksOf(chunk.id).known);
      if (options_.max_prefill_chunk > 0) {
        EXPECT_LE(chunk.count, options_.max_prefill_chunk);
      }
    }
    EXPECT_LE(tokens, options_.max_step_tokens);
  }

  // When a plan does nothing at all, nothing could be done.
  void CheckWorkConserved(const StepPlan& plan) {
    if (!plan.empty() || !plan.expired.empty() || !plan.preempted.empty() ||
        !plan.swap_ins.empty() || !plan.restores.empty() || engine_.blocks.restoring() ||
        !InPhase(Phase::kSwappingOut).empty() || !InPhase(Phase::kSwappingIn).empty()) {
      return;
    }
    ++coverage_.idle;
    const int32_t available = engine_.blocks.AvailableBlocks();
    for (SequenceId id : InPhase(Phase::kRunning)) {
      EXPECT_GT(engine_.blocks.BlocksToReach(id, BooksOf(id).known), available) << id.value();
    }
    for (SequenceId id : InPhase(Phase::kPrefilling)) {
      EXPECT_GT(engine_.blocks.BlocksToReach(id, BooksOf(id).computed + 1), available)
          << id.value();
    }
    if (!InPhase(Phase::kParked).empty()) return;
    EXPECT_TRUE(InPhase(Phase::kRunning).empty() && InPhase(Phase::kPrefilling).empty());
    EXPECT_TRUE(InPhase(Phase::kSwapped).empty())
        << "the pool is empty, but no sequence comes back";
    for (SequenceId id : InPhase(Phase::kWaiting)) {
      EXPECT_TRUE(engine_.blocks.Prefix(id).pending) << id.value() << " could run alone";
    }
  }

  void Execute(const StepPlan& plan) {
    for (const Preemption& one : plan.preempted) requests_.at(one.id).waits_since = engine_.now;
    for (const Admission& one : plan.admitted) {
      Request& request = requests_.at(one.id);
      request.waited += engine_.now - request.waits_since;
    }
    coverage_.swap_ins += static_cast<int64_t>(plan.swap_ins.size());
    engine_.Execute(plan);
    EXPECT_EQ(engine_.scheduler.CheckInvariants(), absl::OkStatus());
    EXPECT_EQ(engine_.blocks.error(), "") << "blocks are over-committed";
    int32_t rows = 0;
    for (const auto& [id, books] : engine_.sequences) {
      const bool holds = books.phase == Phase::kPrefilling || books.phase == Phase::kRunning ||
                         books.phase == Phase::kParked || books.phase == Phase::kSwappingIn;
      rows += holds ? books.spec.width : 0;
    }
    EXPECT_LE(rows, options_.max_sequences);
    for (const PrefillChunk& chunk : plan.prefills) {
      if (chunk.last) EndPrefill(chunk.id);
    }
    for (SequenceId id : plan.decodes) CountOutput(id);
  }

  void EndPrefill(SequenceId id) {
    Request& request = requests_.at(id);
    const SequenceSpec spec = BooksOf(id).spec;
    if (request.forks && BooksOf(id).known == spec.prompt_tokens + 1) {
      std::vector<SequenceId> children;
      for (int32_t row = 1; row < spec.width; ++row) children.push_back(SequenceId(next_id_++));
      engine_.Fork(id, children);
      request.forks = false;
      for (SequenceId child : children) requests_[child] = request;
      for (SequenceId child : children) CountOutput(child);
      ++coverage_.forks;
    }
    if (request.moves) {
      request.moves = false;
      return engine_.Park(id);
    }
    CountOutput(id);
  }

  void CountOutput(SequenceId id) {
    const Books& books = BooksOf(id);
    if (books.known - books.spec.prompt_tokens < requests_.at(id).outputs) return;
    ++coverage_.finished;
    End(id);
  }

  std::mt19937_64 random_;
  Coverage& coverage_;
  StepLearner latency_;
  const SchedulerOptions options_;
  FakeEngine engine_;
  std::map<SequenceId, Request> requests_;
  bool expects_short_ = false;
  uint64_t next_id_ = 1;
  uint64_t next_order_ = 0;
};

TEST(SchedulerProperty, RandomTracesKeepEveryPromise) {
  Coverage seen;
  if (const char* const seed = std::getenv("TANDEM_SEED")) {
    return Trace(std::strtoull(seed, nullptr, 10), seen).Run();
  }
  const char* const asked = std::getenv("TANDEM_TRACES");
  const uint64_t traces = asked != nullptr ? std::strtoull(asked, nullptr, 10) : kTraces;
  for (uint64_t seed = 1; seed <= traces && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "TANDEM_SEED=" << seed);
    Trace(seed, seen).Run();
  }
  if (HasFailure()) return;
  const double preemptions = static_cast<double>(seen.recomputed + seen.swapped);
  fmt::print(
      "{} requests, {} finished, {} steps; preempted: {} computed again, {} swapped, {} swap-ins, "
      "{} "
      "swaps failed; {} restores, {} hits, {} forks, {} expired, {} aged, {} idle\n",
      seen.requests, seen.finished, seen.steps, seen.recomputed, seen.swapped, seen.swap_ins,
      seen.failed_swaps, seen.restores, seen.hits, seen.forks, seen.expired, seen.aged, seen.idle);
  for (int64_t count : {seen.recomputed, seen.swapped, seen.swap_ins, seen.failed_swaps,
                        seen.restores, seen.hits, seen.forks, seen.expired, seen.aged, seen.idle}) {
    EXPECT_GT(count, static_cast<int64_t>(traces / 100)) << "an event hardly ever happens";
  }
  EXPECT_LT(preemptions / static_cast<double>(seen.finished), 0.2);
}

}  // namespace
}  // namespace tandem::scheduler_property_test
