#pragma once

#include <cstdint>

#include "scheduler/sequence_state.h"

namespace tandem {

enum class SchedulingPolicyKind : uint8_t {
  kFair,      // priority, then tenants by deficit round robin, then arrival
  kDeadline,  // priority, then the earliest deadline, then arrival
};

// Which sequences an iteration over the queue returns.
enum class AdmissionFilter : uint8_t {
  kAll,             // waiting sequences may be admitted
  kPrefillingOnly,  // no sequence is admitted any more
};

// The order in which sequences get their prefill chunks, and the rank by which sequences keep their
// blocks when blocks run out. A policy holds the sequences in phases waiting and prefilling by
// reference: they stay at their addresses, and the fields that it orders by (the phase is one of
// them) change only while the sequence is not in the policy.
// Pure: no clock, no device. Thread: engine.
class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;

  virtual void Add(const SequenceState& sequence) = 0;
  virtual void Remove(const SequenceState& sequence) = 0;

  // Rewind begins an iteration, of which each step has one, and Next returns each sequence at most
  // once, then null. `filter` may become narrower during an iteration, never wider. No sequence is
  // added or removed between Rewind and the last Next.
  virtual void Rewind() = 0;
  virtual const SequenceState* Next(AdmissionFilter filter) = 0;

  // Charges the sequence for `tokens` tokens, which it computes in this step in a prefill or a
  // decode. A sequence that Next returned and that is not charged has not used its turn.
  virtual void Charge(const SequenceState& sequence, int32_t tokens) = 0;

  // Whether `b` is preempted before `a`. A total order that does not change while both sequences
  // live: if it depended on what they were charged, two sequences could preempt each other for
  // ever.
  virtual bool Outranks(const SequenceState& a, const SequenceState& b) const = 0;
};

}  // namespace tandem
