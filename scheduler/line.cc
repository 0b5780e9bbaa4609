#include "scheduler/line.h"

#include "base/check.h"

namespace tandem {

Line::Line(Before before) : before_(before), prefilling_(Order{before}), waiting_(Order{before}) {
  Rewind();
}

Line::Set& Line::SetOf(const SequenceState& sequence) {
  return sequence.phase == Phase::kPrefilling ? prefilling_ : waiting_;
}

void Line::Add(const SequenceState& sequence) {
  const bool added = SetOf(sequence).insert(&sequence).second;
  TANDEM_CHECK(added, "a sequence stands in line twice");
}

void Line::Remove(const SequenceState& sequence) {
  Set& set = SetOf(sequence);
  Set::const_iterator& next = &set == &prefilling_ ? next_prefilling_ : next_waiting_;
  const auto place = set.find(&sequence);
  TANDEM_CHECK(place != set.end(), "a sequence is not in its line");
  if (next == place) ++next;
  set.erase(place);
}

void Line::Rewind() {
  next_prefilling_ = prefilling_.begin();
  next_waiting_ = waiting_.begin();
}

bool Line::HasNext(Turns turns) const {
  return next_prefilling_ != prefilling_.end() ||
         (turns == Turns::kAll && next_waiting_ != waiting_.end());
}

const SequenceState* Line::Next(Turns turns) {
  const bool prefilling = next_prefilling_ != prefilling_.end();
  const bool waiting = turns == Turns::kAll && next_waiting_ != waiting_.end();
  if (!HasNext(turns)) return nullptr;
  if (!waiting || (prefilling && before_(**next_prefilling_, **next_waiting_))) {
    return *next_prefilling_++;
  }
  return *next_waiting_++;
}

}  // namespace tandem
