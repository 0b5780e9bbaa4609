#include "scheduler/line.h"
#include "scheduler/policy/policies.h"

namespace tandem {
namespace {

bool MoreUrgent(const SequenceState& a, const SequenceState& b) {
  if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
  if (a.spec.deadline != b.spec.deadline) return a.spec.deadline < b.spec.deadline;
  return ArrivedBefore(a, b);
}

// Earliest deadline first, which among requests of like length is least slack first.
class DeadlinePolicy final : public SchedulingPolicy {
 public:
  void Add(const SequenceState& sequence) override { line_.Add(sequence); }
  void Remove(const SequenceState& sequence) override { line_.Remove(sequence); }
  void Rewind() override { line_.Rewind(); }
  const SequenceState* Next(Turns turns) override { return line_.Next(turns); }
  void Charge(const SequenceState& /*sequence*/, int32_t /*tokens*/) override {}
  bool Outranks(const SequenceState& a, const SequenceState& b) const override {
    return MoreUrgent(a, b);
  }

 private:
  Line line_{&MoreUrgent};
};

}  // namespace

std::unique_ptr<SchedulingPolicy> NewDeadlinePolicy() { return std::make_unique<DeadlinePolicy>(); }

}  // namespace tandem
