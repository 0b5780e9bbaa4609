// Deficit round robin: M. Shreedhar, G. Varghese, "Efficient Fair Queuing using Deficit Round
// Robin", SIGCOMM 1995. This implementation differs in three points. The cost of a turn is known
// only when the turn is used, and decodes cost as well, so a tenant may fall into debt, which later
// rounds pay back. A round begins for all of its tenants at once, so that any number of rounds in
// which no tenant can afford a turn is computed in one step. And a round begins only when a tenant
// uses a turn in it: a tenant that is offered a turn and finds no room pays back nothing.
#include "scheduler/policy/fair.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "scheduler/policy/policies.h"

namespace tandem {
namespace {

constexpr int64_t kQuantum = 256;             // tokens that a round grants each tenant
constexpr int64_t kMaxCredit = 4 * kQuantum;  // limit of unused credit, in tokens
constexpr int64_t kMaxDebt = 64 * kQuantum;   // limit, so that old work is forgotten some day

}  // namespace

void FairLevel::Add(const SequenceState& sequence) {
  tenants_[sequence.spec.tenant].queue.Add(sequence);
}

void FairLevel::Remove(const SequenceState& sequence) {
  const auto place = tenants_.find(sequence.spec.tenant);
  TANDEM_CHECK(place != tenants_.end(), "a sequence of an unknown tenant");
  place->second.queue.Remove(sequence);
}

bool FairLevel::Rewind() {
  offered_ = false;
  rounds_ = 0;
  bool idle = true;
  for (auto& [id, tenant] : tenants_) {
    tenant.queue.Rewind();
    idle &= tenant.queue.empty();
  }
  // Debts count only relative to each other, so an idle level is granted rounds until its richest
  // tenant owes nothing.
  if (idle) Grant(RoundsUntilOne([](const TenantQueue& /*tenant*/) { return true; }, 0));
  cursor_ = tenants_.lower_bound(first_tenant_);
  return std::exchange(charged_, false) || !idle;
}

const SequenceState* FairLevel::Next(AdmissionFilter filter) {
  const auto has_next = [filter](const TenantQueue& tenant) {
    return tenant.queue.HasNext(filter);
  };
  if (std::exchange(offered_, false)) ++cursor_;
  for (;;) {
    for (size_t i = 0; i < tenants_.size(); ++i, ++cursor_) {
      if (cursor_ == tenants_.end()) cursor_ = tenants_.begin();
      TenantQueue& tenant = cursor_->second;
      if (tenant.credit + rounds_ * kQuantum <= 0 || !has_next(tenant)) continue;
      offered_ = true;
      return tenant.queue.Next(filter);
    }
    const int64_t more = RoundsUntilOne(has_next, 1);
    if (more == 0) return nullptr;
    rounds_ += more;
  }
}

void FairLevel::Charge(uint64_t id, int64_t tokens) {
  charged_ = true;
  const bool uses_turn = offered_ && cursor_->first == id;
  if (uses_turn) Grant(std::exchange(rounds_, 0));
  TenantQueue& tenant = tenants_[id];
  tenant.credit = std::max(tenant.credit - tokens, -kMaxDebt);
  if (!uses_turn) return;
  offered_ = false;
  if (tenant.credit <= 0) ++cursor_;
  first_tenant_ = cursor_ == tenants_.end() ? 0 : cursor_->first;
}

// The number of rounds, beyond rounds_, after which the richest tenant that satisfies the predicate
// has a credit of at least `least`; 0 when there is no such tenant.
template <typename Predicate>
int64_t FairLevel::RoundsUntilOne(Predicate predicate, int64_t least) const {
  int64_t credit = std::numeric_limits<int64_t>::min();
  for (const auto& [id, tenant] : tenants_) {
    if (predicate(tenant)) credit = std::max(credit, tenant.credit + rounds_ * kQuantum);
  }
  if (credit == std::numeric_limits<int64_t>::min() || credit >= least) return 0;
  return (least - credit + kQuantum - 1) / kQuantum;
}

// Grants every tenant the credit of `rounds` rounds, and deletes the tenants that then have neither
// a sequence nor a debt.
void FairLevel::Grant(int64_t rounds) {
  if (rounds == 0) return;
  for (auto place = tenants_.begin(); place != tenants_.end();) {
    TenantQueue& tenant = place->second;
    tenant.credit = std::min(tenant.credit + rounds * kQuantum, kMaxCredit);
    const bool forget = tenant.queue.empty() && tenant.credit >= 0;
    place = forget ? tenants_.erase(place) : std::next(place);
  }
}

void FairPolicy::Rewind() {
  for (auto level = levels_.begin(); level != levels_.end();) {
    level = level->second.Rewind() ? std::next(level) : levels_.erase(level);
  }
  current_ = levels_.begin();
}

const SequenceState* FairPolicy::Next(AdmissionFilter filter) {
  for (; current_ != levels_.end(); ++current_) {
    if (const SequenceState* next = current_->second.Next(filter)) return next;
  }
  return nullptr;
}

void FairPolicy::Charge(const SequenceState& sequence, int32_t tokens) {
  LevelOf(sequence).Charge(sequence.spec.tenant, tokens);
}

bool FairPolicy::Outranks(const SequenceState& a, const SequenceState& b) const {
  if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
  return ArrivedBefore(a, b);
}

std::unique_ptr<SchedulingPolicy> NewFairPolicy() { return std::make_unique<FairPolicy>(); }

}  // namespace tandem
