// Deficit round robin: M. Shreedhar, G. Varghese, "Efficient Fair Queuing using Deficit Round
// Robin", SIGCOMM 1995. Differences: the cost of a turn is known only when it is taken, and decodes
// cost too, so that a tenant may fall into debt, which later rounds pay back; a round begins for
// all of its tenants at once, so that rounds in which nobody could afford anything are one step;
// and it begins only when somebody takes a turn in it: to be offered one and find no room pays no
// debt.
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
constexpr int64_t kMaxCredit = 4 * kQuantum;  // of a tenant that found no room for its turns
constexpr int64_t kMaxDebt = 64 * kQuantum;   // what ran long ago does not count for ever

}  // namespace

void FairLevel::Add(const SequenceState& sequence) {
  shares_[sequence.spec.tenant].line.Add(sequence);
}

void FairLevel::Remove(const SequenceState& sequence) {
  const auto place = shares_.find(sequence.spec.tenant);
  TANDEM_CHECK(place != shares_.end(), "a sequence of an unknown tenant");
  place->second.line.Remove(sequence);
}

bool FairLevel::Rewind() {
  offered_ = false;
  rounds_ = 0;
  bool idle = true;
  for (auto& [tenant, share] : shares_) {
    share.line.Rewind();
    idle &= share.line.empty();
  }
  // Debts count only relative to each other: one alone owes nobody.
  if (idle) Grant(RoundsUntilOne([](const Share& /*share*/) { return true; }, 0));
  cursor_ = shares_.lower_bound(turn_);
  return std::exchange(charged_, false) || !idle;
}

const SequenceState* FairLevel::Next(Turns turns) {
  const auto in_walk = [turns](const Share& share) { return share.line.HasNext(turns); };
  if (std::exchange(offered_, false)) ++cursor_;
  for (;;) {
    for (size_t i = 0; i < shares_.size(); ++i, ++cursor_) {
      if (cursor_ == shares_.end()) cursor_ = shares_.begin();
      Share& share = cursor_->second;
      if (share.credit + rounds_ * kQuantum <= 0 || !in_walk(share)) continue;
      offered_ = true;
      return share.line.Next(turns);
    }
    const int64_t more = RoundsUntilOne(in_walk, 1);
    if (more == 0) return nullptr;
    rounds_ += more;
  }
}

void FairLevel::Charge(uint64_t tenant, int64_t tokens) {
  charged_ = true;
  const bool takes_turn = offered_ && cursor_->first == tenant;
  if (takes_turn) Grant(std::exchange(rounds_, 0));
  Share& share = shares_[tenant];
  share.credit = std::max(share.credit - tokens, -kMaxDebt);
  if (!takes_turn) return;
  offered_ = false;
  if (share.credit <= 0) ++cursor_;
  turn_ = cursor_ == shares_.end() ? 0 : cursor_->first;
}

// Rounds beyond rounds_ after which the first of those asked about has a credit of `least`; 0
// when there are none.
template <typename Predicate>
int64_t FairLevel::RoundsUntilOne(Predicate asked, int64_t least) const {
  int64_t credit = std::numeric_limits<int64_t>::min();
  for (const auto& [tenant, share] : shares_) {
    if (asked(share)) credit = std::max(credit, share.credit + rounds_ * kQuantum);
  }
  if (credit == std::numeric_limits<int64_t>::min() || credit >= least) return 0;
  return (least - credit + kQuantum - 1) / kQuantum;
}

// Forgets tenants that then have neither a sequence in line nor a debt.
void FairLevel::Grant(int64_t rounds) {
  if (rounds == 0) return;
  for (auto place = shares_.begin(); place != shares_.end();) {
    Share& share = place->second;
    share.credit = std::min(share.credit + rounds * kQuantum, kMaxCredit);
    const bool forget = share.line.empty() && share.credit >= 0;
    place = forget ? shares_.erase(place) : std::next(place);
  }
}

void FairPolicy::Rewind() {
  for (auto level = levels_.begin(); level != levels_.end();) {
    level = level->second.Rewind() ? std::next(level) : levels_.erase(level);
  }
  current_ = levels_.begin();
}

const SequenceState* FairPolicy::Next(Turns turns) {
  for (; current_ != levels_.end(); ++current_) {
    if (const SequenceState* next = current_->second.Next(turns)) return next;
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
