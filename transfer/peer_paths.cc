#include "transfer/peer_paths.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tandem {

PeerPaths::PeerPaths(const std::vector<std::string>& transports) {
  TANDEM_CHECK(!transports.empty(), "a peer has a way");
  for (const std::string& transport : transports) paths_.push_back({.transport = transport});
}

std::optional<size_t> PeerPaths::Fastest() const {
  const auto fastest = std::ranges::max_element(paths_, {}, &Path::rate);
  if (fastest->rate == 0) return std::nullopt;
  return static_cast<size_t>(fastest - paths_.begin());
}

// Of those that were not measured, a failed probe is the usual reason: what is better by nature
// than the fastest stays before it, so that streams come back to it, the rest is for emergencies.
std::vector<size_t> PeerPaths::BestFirst() const {
  std::vector<size_t> order(paths_.size());
  std::iota(order.begin(), order.end(), 0);
  const std::optional<size_t> fastest = Fastest();
  if (!fastest) return order;
  const auto rank = [this, fastest](size_t path) {
    const bool better_by_nature = paths_[path].rate == 0 && path < *fastest;
    return std::pair(!better_by_nature, -paths_[path].rate);
  };
  std::ranges::stable_sort(order, {}, rank);
  return order;
}

size_t PeerPaths::Pick(const std::vector<size_t>& best_first, TimePoint now) const {
  for (const size_t path : best_first) {
    const State state = paths_[path].state;
    if (state == State::kUp) return path;
    if (state == State::kDown && paths_[path].down_until <= now) return path;
  }
  // All have failed: the one that may be tried soonest.
  return *std::min_element(best_first.begin(), best_first.end(), [this](size_t a, size_t b) {
    return paths_[a].down_until < paths_[b].down_until;
  });
}

PeerPaths::Choice PeerPaths::Choose(TimePoint now) {
  const std::vector<size_t> best_first = BestFirst();
  const size_t chosen = Pick(best_first, now);
  Path& path = paths_[chosen];
  if (path.state == State::kDown) path.state = State::kTrial;
  Choice choice{.use = {.path = chosen, .life = path.life}, .fallback = std::nullopt};
  const Path& best = paths_[best_first.front()];
  const bool falls_back = chosen != best_first.front();
  if (falls_back && (!fell_back_ || in_use_ != chosen)) {
    choice.fallback = Fallback{.from = best.transport, .to = path.transport, .reason = best.reason};
    ++fallbacks_;
    fallback_reason_ = best.reason;
  }
  in_use_ = chosen;
  fell_back_ = falls_back;
  return choice;
}

void PeerPaths::Worked(Use use) {
  Path& path = paths_[use.path];
  if (use.life != path.life) return;
  path.state = State::kUp;
  path.back_off = kFirstBackOff;
}

void PeerPaths::Failed(Use use, TimePoint now, const std::string& reason) {
  Path& path = paths_[use.path];
  if (use.life != path.life) return;
  ++path.life;
  path.state = State::kDown;
  path.down_until = now + path.back_off;
  path.back_off = std::min(path.back_off * 2, kLongestBackOff);
  path.reason = reason;
}

void PeerPaths::Damaged(Use use, TimePoint now, const std::string& reason) {
  Path& path = paths_[use.path];
  if (use.life == path.life) path.back_off = kLongestBackOff;
  Failed(use, now, reason);
}

void PeerPaths::GaveUp(Use use) {
  Path& path = paths_[use.path];
  if (use.life == path.life && path.state == State::kTrial) path.state = State::kDown;
}

void PeerPaths::SetRate(size_t path, double gigabytes_per_second) {
  paths_[path].rate = gigabytes_per_second;
}

}  // namespace tandem
