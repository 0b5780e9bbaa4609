#include "scheduler/policy/policies.h"

#include "base/check.h"

namespace tandem {

std::unique_ptr<SchedulingPolicy> NewSchedulingPolicy(SchedulingPolicyKind kind) {
  switch (kind) {
    case SchedulingPolicyKind::kFair:
      return NewFairPolicy();
    case SchedulingPolicyKind::kDeadline:
      return NewDeadlinePolicy();
  }
  TANDEM_CHECK(false, "a scheduling policy that does not exist");
}

}  // namespace tandem
