#pragma once

#include <cstdint>

#include "scheduler/sequence_state.h"

namespace tandem {

enum class SchedulingPolicyKind : uint8_t {
  kFair,      // priority, then tenants by deficit round robin, then arrival
  kDeadline,  // priority, then the earliest deadline, then arrival
};

// Who may have a turn in a walk.
enum class Turns : uint8_t {
  kAll,
  kPrefilling,  // nobody is admitted any more
};

// The order in which sequences get their prefill chunks, and who gives way when blocks run out.
// It knows sequences in phases waiting and prefilling, by reference: they stay where they are, and
// what it orders by, the phase included, changes only while they are not in here.
// Pure: no clock, no device. Thread: engine.
class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;

  virtual void Add(const SequenceState& sequence) = 0;
  virtual void Remove(const SequenceState& sequence) = 0;

  // One walk per step: each sequence has at most one turn, nothing when all had theirs. `turns` may
  // narrow during a walk, never widen. Nobody is added or removed between Rewind and the last Next.
  virtual void Rewind() = 0;
  virtual const SequenceState* Next(Turns turns) = 0;

  // The sequence computes `tokens` in this step, prefill or decode. A turn that was offered and not
  // charged was not taken.
  virtual void Charge(const SequenceState& sequence, int32_t tokens) = 0;

  // Whether `a` keeps its blocks before `b` does. A total order that does not change while both
  // live: were it to follow what they were charged, two sequences could preempt each other for
  // ever.
  virtual bool Outranks(const SequenceState& a, const SequenceState& b) const = 0;
};

}  // namespace tandem
