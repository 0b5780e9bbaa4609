#include "transfer/fabric/link_selector.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tandem {

LinkSelector::LinkSelector(const std::vector<std::string>& transports) {
  TANDEM_CHECK(!transports.empty(), "a peer has at least one link");
  for (const std::string& transport : transports) links_.push_back({.transport = transport});
}

std::vector<size_t> LinkSelector::BestFirst() const {
  std::vector<size_t> order(links_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto fastest = std::ranges::max_element(links_, {}, &Link::rate);
  if (fastest->rate == 0) return order;
  // Unmeasured links that the worker prefers to the fastest one stay before it, so that streams
  // come back to them. Unmeasured links behind it are for emergencies.
  const auto rank = [this, fastest = fastest - links_.begin()](size_t link) {
    const bool preferred = links_[link].rate == 0 && static_cast<std::ptrdiff_t>(link) < fastest;
    return std::pair(!preferred, -links_[link].rate);
  };
  std::ranges::stable_sort(order, {}, rank);
  return order;
}

size_t LinkSelector::Pick(const std::vector<size_t>& best_first, TimePoint now) const {
  for (const size_t link : best_first) {
    const State state = links_[link].state;
    if (state == State::kUp) return link;
    if (state == State::kDown && links_[link].down_until <= now) return link;
  }
  // Every link has failed, so the stream takes the one whose back-off ends first.
  return *std::ranges::min_element(best_first, {},
                                   [this](size_t link) { return links_[link].down_until; });
}

LinkSelector::Choice LinkSelector::Choose(TimePoint now) {
  const std::vector<size_t> best_first = BestFirst();
  const size_t chosen = Pick(best_first, now);
  Link& link = links_[chosen];
  if (link.state == State::kDown) link.state = State::kTrial;
  Choice choice{.use = {.link = chosen, .life = link.life}, .fallback = std::nullopt};
  const Link& best = links_[best_first.front()];
  const bool falls_back = chosen != best_first.front();
  if (falls_back && (!fell_back_ || in_use_ != chosen)) {
    choice.fallback = Fallback{.from = best.transport, .to = link.transport, .reason = best.reason};
    ++fallbacks_;
    fallback_reason_ = best.reason;
  }
  in_use_ = chosen;
  fell_back_ = falls_back;
  return choice;
}

void LinkSelector::Worked(Use use) {
  Link& link = links_[use.link];
  if (use.life != link.life) return;
  link.state = State::kUp;
  link.back_off = kFirstBackOff;
}

void LinkSelector::Failed(Use use, TimePoint now, const std::string& reason) {
  Link& link = links_[use.link];
  if (use.life != link.life) return;
  ++link.life;
  link.state = State::kDown;
  link.down_until = now + link.back_off;
  link.back_off = std::min(link.back_off * 2, kLongestBackOff);
  link.reason = reason;
}

void LinkSelector::Damaged(Use use, TimePoint now, const std::string& reason) {
  Link& link = links_[use.link];
  if (use.life == link.life) link.back_off = kLongestBackOff;
  Failed(use, now, reason);
}

void LinkSelector::GaveUp(Use use) {
  Link& link = links_[use.link];
  if (use.life == link.life && link.state == State::kTrial) link.state = State::kDown;
}

void LinkSelector::SetRate(size_t link, double gigabytes_per_second) {
  links_[link].rate = gigabytes_per_second;
}

}  // namespace tandem
