#include "scheduler/ordered_queue.h"
#include "scheduler/policy/policies.h"

namespace tandem {
namespace {

bool MoreUrgent(const SequenceState& a, const SequenceState& b) {
  if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
  if (a.spec.deadline != b.spec.deadline) return a.spec.deadline < b.spec.deadline;
  return ArrivedBefore(a, b);
}

// Orders sequences by priority and then by the earliest deadline. Among requests of similar length
// that is also the order of the least slack.
class DeadlinePolicy final : public SchedulingPolicy {
 public:
  void Add(const SequenceState& sequence) override { queue_.Add(sequence); }
  void Remove(const SequenceState& sequence) override { queue_.Remove(sequence); }
  void Rewind() override { queue_.Rewind(); }
  const SequenceState* Next(AdmissionFilter filter) override { return queue_.Next(filter); }
  void Charge(const SequenceState& /*sequence*/, int32_t /*tokens*/) override {}
  bool Outranks(const SequenceState& a, const SequenceState& b) const override {
    return MoreUrgent(a, b);
  }

 private:
  OrderedQueue queue_{&MoreUrgent};
};

}  // namespace

std::unique_ptr<SchedulingPolicy> NewDeadlinePolicy() { return std::make_unique<DeadlinePolicy>(); }

}  // namespace tandem
