// Deficit round robin: M. Shreedhar, G. Varghese, "Efficient Fair Queuing using Deficit Round
// Robin", SIGCOMM 1995. Differences: the cost of a turn is known only when it is taken, and decodes
// cost too, so that a tenant may fall into debt, which later rounds pay back; and a round begins
// for all of its tenants at once, so that rounds in which nobody could afford anything are one
// step.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>

#include "base/check.h"
#include "scheduler/line.h"
#include "scheduler/policy/policies.h"

namespace tandem {
namespace {

constexpr int64_t kQuantum = 256;             // tokens that a round grants each tenant
constexpr int64_t kMaxCredit = 4 * kQuantum;  // of a tenant that found no room for its turns
constexpr int64_t kMaxDebt = 64 * kQuantum;   // what ran long ago does not count for ever

// What one tenant has in line at one priority.
struct Share {
  Line line{&ArrivedBefore};
  int64_t credit = 0;
  bool passed = false;  // nothing is left of its line in this walk
};

// The tenants of one priority. Credits are compared within a level only: between levels the
// priority decides.
class Level {
 public:
  void Add(const SequenceState& sequence) { shares_[sequence.spec.tenant].line.Add(sequence); }

  void Remove(const SequenceState& sequence) {
    const auto place = shares_.find(sequence.spec.tenant);
    TANDEM_CHECK(place != shares_.end(), "a sequence of an unknown tenant");
    place->second.line.Remove(sequence);
  }

  void Rewind() {
    for (auto& [tenant, share] : shares_) {
      share.line.Rewind();
      share.passed = share.line.empty();
    }
    cursor_ = shares_.lower_bound(turn_);
    charged_ = true;
    if (std::all_of(shares_.begin(), shares_.end(),
                    [](auto& entry) { return entry.second.passed; }))
      SettleIdle();
  }

  const SequenceState* Next(Turns turns) {
    if (!charged_) Step();
    charged_ = false;
    for (;;) {
      for (size_t i = 0; i < shares_.size(); ++i, Step()) {
        if (cursor_ == shares_.end()) cursor_ = shares_.begin();
        Share& share = cursor_->second;
        if (share.passed || share.credit <= 0) continue;
        if (const SequenceState* next = share.line.Next(turns)) return next;
        share.passed = true;
      }
      if (!BeginRound()) return nullptr;
    }
  }

  void Charge(uint64_t tenant, int64_t tokens) {
    Share& share = shares_[tenant];
    share.credit = std::max(share.credit - tokens, -kMaxDebt);
    if (cursor_ == shares_.end() || cursor_->first != tenant) return;
    charged_ = true;
    turn_ = tenant;
    if (share.credit > 0) return;
    Step();
    turn_ = cursor_->first;
  }

 private:
  using Shares = std::map<uint64_t, Share>;

  void Step() {
    if (cursor_ != shares_.end()) ++cursor_;
    if (cursor_ == shares_.end()) cursor_ = shares_.begin();
  }

  // As many rounds as it takes until one of those in the walk can afford a turn. False when nobody
  // is left in it.
  bool BeginRound() {
    int64_t rounds = std::numeric_limits<int64_t>::max();
    for (const auto& [tenant, share] : shares_) {
      if (!share.passed) rounds = std::min(rounds, -share.credit / kQuantum + 1);
    }
    if (rounds == std::numeric_limits<int64_t>::max()) return false;
    Grant(rounds);
    return true;
  }

  // Nobody is in line: debts count only relative to each other, one alone owes nobody.
  void SettleIdle() {
    int64_t rounds = std::numeric_limits<int64_t>::max();
    for (const auto& [tenant, share] : shares_) {
      rounds = std::min(rounds, (-share.credit + kQuantum - 1) / kQuantum);
    }
    if (!shares_.empty() && rounds > 0) Grant(rounds);
  }

  // Forgets tenants that then have neither a sequence in line nor a debt.
  void Grant(int64_t rounds) {
    for (auto place = shares_.begin(); place != shares_.end();) {
      Share& share = place->second;
      share.credit = std::min(share.credit + rounds * kQuantum, kMaxCredit);
      const bool forget = share.line.empty() && share.credit >= 0;
      if (forget && cursor_ == place) ++cursor_;
      place = forget ? shares_.erase(place) : std::next(place);
    }
  }

  Shares shares_;
  uint64_t turn_ = 0;  // the tenant that goes first in the next walk
  Shares::iterator cursor_ = shares_.end();
  bool charged_ = true;
};

class FairPolicy final : public SchedulingPolicy {
 public:
  void Add(const SequenceState& sequence) override { LevelOf(sequence).Add(sequence); }
  void Remove(const SequenceState& sequence) override { LevelOf(sequence).Remove(sequence); }

  void Rewind() override {
    for (auto& [priority, level] : levels_) level.Rewind();
    current_ = levels_.begin();
  }

  const SequenceState* Next(Turns turns) override {
    for (; current_ != levels_.end(); ++current_) {
      if (const SequenceState* next = current_->second.Next(turns)) return next;
    }
    return nullptr;
  }

  void Charge(const SequenceState& sequence, int32_t tokens) override {
    LevelOf(sequence).Charge(sequence.spec.tenant, tokens);
  }

  bool Outranks(const SequenceState& a, const SequenceState& b) const override {
    if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
    return ArrivedBefore(a, b);
  }

 private:
  using Levels = std::map<int32_t, Level, std::greater<>>;

  Level& LevelOf(const SequenceState& sequence) { return levels_[sequence.spec.priority]; }

  Levels levels_;  // highest priority first
  Levels::iterator current_ = levels_.end();
};

}  // namespace

std::unique_ptr<SchedulingPolicy> NewFairPolicy() { return std::make_unique<FairPolicy>(); }

}  // namespace tandem
