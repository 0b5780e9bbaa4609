// The fair policy on its own: what it keeps of priorities that were used before.
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/policy/fair.h"

namespace tandem::fair_policy_test {
namespace {

SequenceState Waiting(uint64_t id, int32_t priority, uint64_t tenant = 0) {
  SequenceState sequence;
  sequence.spec = {.id = SequenceId(id), .priority = priority, .tenant = tenant};
  sequence.order = id;
  return sequence;
}

// Admits the sequence, computes `tokens` of it, and lets it end.
void Serve(FairPolicy& policy, SequenceState& sequence, int32_t tokens) {
  policy.Add(sequence);
  policy.Rewind();
  ASSERT_EQ(policy.Next(AdmissionFilter::kAll), &sequence);
  policy.Charge(sequence, tokens);
  policy.Remove(sequence);
}

TEST(FairPolicyTest, AnUnusedPriorityCostsLaterStepsNothing) {
  FairPolicy policy;
  for (int32_t priority = -10'000; priority < 10'000; ++priority) {
    SequenceState sequence = Waiting(static_cast<uint64_t>(priority + 20'000), priority);
    Serve(policy, sequence, 3);
    EXPECT_LE(policy.num_levels(), 2u) << "priority " << priority;
  }
  policy.Rewind();
  policy.Rewind();
  EXPECT_EQ(policy.num_levels(), 0u);
}

TEST(FairPolicyTest, APriorityWhoseSequencesWereCancelledIsForgotten) {
  FairPolicy policy;
  SequenceState first = Waiting(1, 5, 7);
  policy.Add(first);
  policy.Rewind();
  EXPECT_EQ(policy.num_levels(), 1u);
  policy.Remove(first);
  policy.Rewind();
  EXPECT_EQ(policy.num_levels(), 0u);
}

// One of the two tenants is left with a debt and the other with credit: neither may keep the level.
TEST(FairPolicyTest, ADebtThatIsOwedToNobodyDoesNotKeepAPriority) {
  FairPolicy policy;
  SequenceState a = Waiting(1, 5, 1);
  SequenceState b = Waiting(2, 5, 2);
  policy.Add(a);
  policy.Add(b);
  policy.Rewind();
  for (const SequenceState* next; (next = policy.Next(AdmissionFilter::kAll)) != nullptr;) {
    policy.Charge(*next, 3);
  }
  policy.Remove(a);
  policy.Remove(b);
  policy.Charge(b, 5'000);  // it decodes for long
  policy.Rewind();
  policy.Rewind();
  EXPECT_EQ(policy.num_levels(), 0u);
}

TEST(FairPolicyTest, APriorityInUseKeepsTheDebtsOfItsTenants) {
  FairPolicy policy;
  SequenceState greedy = Waiting(1, 5, 1);
  Serve(policy, greedy, 2'000);
  SequenceState second = Waiting(2, 5, 1);
  SequenceState other = Waiting(3, 5, 2);
  policy.Add(second);
  policy.Add(other);
  policy.Rewind();
  EXPECT_EQ(policy.Next(AdmissionFilter::kAll), &other) << "tenant 1 has had 2,000 tokens more";
}

}  // namespace
}  // namespace tandem::fair_policy_test
