#include "transfer/peer_paths.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tandem {

PeerPaths::PeerPaths(const std::vector<std::string>& transports) {
  TANDEM_CHECK(!transports.empty(), "a peer has a way");
  for (const std::string& transport : transports) paths_.push_back({.transport = transport});
}

std::vector<size_t> PeerPaths::BestFirst() const {
  std::vector<size_t> order(paths_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return paths_[a].rate > paths_[b].rate; });
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
  if (chosen != best_first.front() && in_use_ != chosen) {
    choice.fallback = Fallback{.from = best.transport, .to = path.transport, .reason = best.reason};
    ++fallbacks_;
    fallback_reason_ = best.reason;
  }
  in_use_ = chosen;
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

void PeerPaths::GaveUp(Use use) {
  Path& path = paths_[use.path];
  if (use.life == path.life && path.state == State::kTrial) path.state = State::kDown;
}

void PeerPaths::SetRate(size_t path, double gigabytes_per_second) {
  paths_[path].rate = gigabytes_per_second;
}

}  // namespace tandem
