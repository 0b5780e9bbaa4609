#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/scheduler.h"
#include "tests/unit/scheduler/block_model.h"

namespace tandem {

// Carries out the plans of a scheduler over a BlockModel, and keeps its own record of every
// sequence. Copies between device and host end when EndCopies is called.
class FakeEngine {
 public:
  struct Sequence {
    SequenceSpec spec;
    Phase phase = Phase::kWaiting;
    int32_t computed = 0;
    int32_t known = 0;
    int32_t preemptions = 0;
  };

  FakeEngine(const SchedulerOptions& options, const StepLearner& latency)
      : scheduler(options, latency), blocks(options.total_blocks, options.block_tokens) {}

  absl::Status Enqueue(const SequenceSpec& spec, int32_t group = 0, int32_t group_tokens = 0) {
    const absl::Status status = scheduler.Enqueue(spec, now);
    if (!status.ok()) return status;
    blocks.Know(spec, group, group_tokens);
    sequences[spec.id] = {.spec = spec, .known = spec.prompt_tokens + spec.emitted_tokens};
    return status;
  }

  absl::Status Reserve(const SequenceSpec& spec) {
    blocks.Know(spec);
    const absl::Status status = scheduler.Reserve(spec, blocks, now);
    if (!status.ok()) {
      blocks.Forget(spec.id);
      return status;
    }
    blocks.Compute(spec.id, spec.prompt_tokens);
    sequences[spec.id] = {.spec = spec, .phase = Phase::kParked, .known = spec.prompt_tokens};
    return status;
  }

  void Activate(SequenceId id) {
    scheduler.Activate(id);
    Sequence& one = sequences.at(id);
    one.phase = Phase::kRunning;
    one.computed = one.spec.prompt_tokens;
    one.known = one.computed + 1;
  }

  // Resumes a sequence of one row whose prompt KV is complete.
  void Resume(SequenceId id, int32_t emitted) {
    Sequence& one = sequences.at(id);
    const Scheduler::Resumed itself = {
        .id = id, .computed_tokens = one.spec.prompt_tokens, .emitted_tokens = emitted};
    scheduler.Resume(id, {&itself, 1});
    one.phase = Phase::kPrefilling;
    one.computed = one.spec.prompt_tokens;
    one.known = one.computed + emitted;
  }

  void Park(SequenceId id) {
    scheduler.Park(id);
    sequences.at(id).phase = Phase::kParked;
  }

  void TransferTo(SequenceId parked, const SequenceSpec& successor) {
    scheduler.TransferTo(parked, successor);
    blocks.Know(successor);
    blocks.TransferTo(parked, successor.id);
    sequences.erase(parked);
    sequences[successor.id] = {
        .spec = successor, .phase = Phase::kParked, .known = successor.prompt_tokens};
  }

  void Fork(SequenceId parent, const std::vector<SequenceId>& children) {
    scheduler.Fork(parent, children);
    Sequence& forked = sequences.at(parent);
    forked.spec.width = 1;
    for (SequenceId id : children) {
      blocks.Fork(parent, id);
      Sequence child = forked;
      child.spec.id = id;
      sequences[id] = child;
    }
  }

  void Finish(SequenceId id) {
    scheduler.Finish(id);
    blocks.Forget(id);
    sequences.erase(id);
  }

  StepPlan Plan() { return scheduler.Plan(now, blocks); }

  void Execute(const StepPlan& plan) {
    for (SequenceId id : plan.expired) {
      blocks.Forget(id);
      sequences.erase(id);
    }
    for (const Preemption& one : plan.preempted) Preempt(one);
    for (SequenceId id : plan.swap_ins) {
      blocks.BeginSwapIn(id);
      sequences.at(id).phase = Phase::kSwappingIn;
    }
    for (SequenceId id : plan.restores) blocks.BeginRestore(id);
    for (const Admission& one : plan.admitted) {
      blocks.Attach(one.id, one.cached_tokens);
      sequences.at(one.id).phase = Phase::kPrefilling;
      sequences.at(one.id).computed = one.cached_tokens;
    }
    for (const PrefillChunk& chunk : plan.prefills) {
      Sequence& one = sequences.at(chunk.id);
      blocks.Compute(chunk.id, one.computed += chunk.count);
      if (!chunk.last) continue;
      ++one.known;
      one.phase = Phase::kRunning;
    }
    for (SequenceId id : plan.decodes) {
      Sequence& one = sequences.at(id);
      blocks.Compute(id, one.computed = one.known++);
    }
    scheduler.Advance(plan);
  }

  void EndSwapOut(SequenceId id) {
    blocks.EndSwapOut(id);
    sequences.at(id).phase = Phase::kSwapped;
    scheduler.SwappedOut(id);
  }

  void EndSwapIn(SequenceId id) {
    sequences.at(id).phase = Phase::kRunning;
    scheduler.SwappedIn(id);
  }

  void FailSwap(SequenceId id) {
    ComputeAgain(id);
    scheduler.SwapFailed(id);
  }

  void EndCopies() {
    blocks.EndRestores();
    for (auto& [id, one] : sequences) {
      if (one.phase == Phase::kSwappingOut)
        EndSwapOut(id);
      else if (one.phase == Phase::kSwappingIn)
        EndSwapIn(id);
    }
  }

  StepPlan Step() {
    StepPlan plan = Plan();
    Execute(plan);
    EXPECT_EQ(scheduler.CheckInvariants(), absl::OkStatus());
    EXPECT_EQ(blocks.error(), "");
    return plan;
  }

  Scheduler scheduler;
  BlockModel blocks;
  TimePoint now = TimePoint(std::chrono::seconds(1000));
  std::map<SequenceId, Sequence> sequences;

 private:
  void Preempt(const Preemption& preemption) {
    Sequence& one = sequences.at(preemption.id);
    ++one.preemptions;
    if (preemption.how == Preemption::How::kRecompute) return ComputeAgain(preemption.id);
    blocks.BeginSwapOut(preemption.id);
    one.phase = Phase::kSwappingOut;
  }

  void ComputeAgain(SequenceId id) {
    Sequence& one = sequences.at(id);
    blocks.GiveBack(id);
    one.phase = Phase::kWaiting;
    one.computed = 0;
    if (one.spec.width > 1) one.known = one.spec.prompt_tokens;
    blocks.SetKnown(id, one.known);
  }
};

}  // namespace tandem
