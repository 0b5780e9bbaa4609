#include "scheduler/ordered_queue.h"

#include "base/check.h"

namespace tandem {

OrderedQueue::OrderedQueue(Before before)
    : before_(before), prefilling_(Order{before}), waiting_(Order{before}) {
  Rewind();
}

OrderedQueue::Set& OrderedQueue::SetOf(const SequenceState& sequence) {
  return sequence.phase == Phase::kPrefilling ? prefilling_ : waiting_;
}

void OrderedQueue::Add(const SequenceState& sequence) {
  const bool added = SetOf(sequence).insert(&sequence).second;
  TANDEM_CHECK(added, "a sequence is added to its queue twice");
}

void OrderedQueue::Remove(const SequenceState& sequence) {
  Set& set = SetOf(sequence);
  Set::const_iterator& next = &set == &prefilling_ ? next_prefilling_ : next_waiting_;
  const auto place = set.find(&sequence);
  TANDEM_CHECK(place != set.end(), "a sequence is not in its queue");
  if (next == place) ++next;
  set.erase(place);
}

void OrderedQueue::Rewind() {
  next_prefilling_ = prefilling_.begin();
  next_waiting_ = waiting_.begin();
}

bool OrderedQueue::HasNext(AdmissionFilter filter) const {
  return next_prefilling_ != prefilling_.end() ||
         (filter == AdmissionFilter::kAll && next_waiting_ != waiting_.end());
}

const SequenceState* OrderedQueue::Next(AdmissionFilter filter) {
  const bool prefilling = next_prefilling_ != prefilling_.end();
  const bool waiting = filter == AdmissionFilter::kAll && next_waiting_ != waiting_.end();
  if (!HasNext(filter)) return nullptr;
  if (!waiting || (prefilling && before_(**next_prefilling_, **next_waiting_))) {
    return *next_prefilling_++;
  }
  return *next_waiting_++;
}

}  // namespace tandem
