#include "scheduler/aging_queue.h"

#include <utility>

namespace tandem {

AgingQueue::AgingQueue(std::unique_ptr<SchedulingPolicy> policy, Duration max_wait)
    : policy_(std::move(policy)), max_wait_(max_wait) {}

TimePoint AgingQueue::AgesAt(const SequenceState& sequence) const {
  return sequence.waits_since + (max_wait_ - sequence.waited);
}

void AgingQueue::Add(SequenceState& sequence, TimePoint now) {
  ++size_;
  if (sequence.aged) return aged_.Add(sequence);
  policy_->Add(sequence);
  if (sequence.phase != Phase::kWaiting) return;
  sequence.waits_since = now;
  aging_.emplace(AgesAt(sequence), &sequence);
}

void AgingQueue::Remove(SequenceState& sequence, TimePoint now) {
  --size_;
  if (sequence.aged) return aged_.Remove(sequence);
  policy_->Remove(sequence);
  if (sequence.phase != Phase::kWaiting) return;
  aging_.erase({AgesAt(sequence), &sequence});
  sequence.waited += now - sequence.waits_since;
}

void AgingQueue::Age(TimePoint now) {
  while (!aging_.empty() && aging_.begin()->first < now) {
    SequenceState& sequence = *aging_.begin()->second;
    Remove(sequence, now);
    sequence.aged = true;
    Add(sequence, now);
  }
}

const SequenceState* AgingQueue::FirstWaiting(TimePoint now) {
  Age(now);
  Rewind();
  const SequenceState* first = Next(AdmissionFilter::kAll);
  while (first != nullptr && first->phase != Phase::kWaiting) first = Next(AdmissionFilter::kAll);
  Rewind();
  return first;
}

void AgingQueue::Rewind() {
  aged_.Rewind();
  policy_->Rewind();
}

const SequenceState* AgingQueue::Next(AdmissionFilter filter) {
  if (const SequenceState* next = aged_.Next(filter)) return next;
  return policy_->Next(filter);
}

bool AgingQueue::Outranks(const SequenceState& a, const SequenceState& b) const {
  if (a.aged != b.aged) return a.aged;
  return a.aged ? ArrivedBefore(a, b) : policy_->Outranks(a, b);
}

}  // namespace tandem
