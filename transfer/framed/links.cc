#include "transfer/framed/links.h"

#include <algorithm>

namespace tandem {

double LinkMeter::Span::bytes_per_second() const {
  return static_cast<double>(bytes) /
         std::chrono::duration<double>(std::max(time, Duration(1))).count();
}

void LinkMeter::Arrived(TimePoint now, uint64_t bytes, uint64_t left) {
  const bool together = now - since_ < kTogether;
  if (!together) CloseWhatIsOver();
  // If more arrived than was on its way at the previous answer, the link may have been idle between
  // the two.
  head_ = bytes > left_ || (head_ && together);
  if (!head_) {
    const Span span = {.bytes = bytes, .time = now - since_};
    part_.Add(span);
    window_.Add(span);
  }
  since_ = now;
  left_ = left;
}

void LinkMeter::CloseWhatIsOver() {
  if (part_.IsOver(kPartBytes)) {
    fastest_part_ = std::max(fastest_part_, std::exchange(part_, {}).bytes_per_second());
  }
  if (!window_.IsOver(kWindowBytes)) return;
  const double rate = std::exchange(window_, {}).bytes_per_second();
  part_ = {};
  // A window of few bytes has no finished part, so the rate of the window stands in for it.
  fastest_.push_back(std::max(rate, std::exchange(fastest_part_, 0)));
  // While there are few windows, all have the same weight.
  const auto windows = static_cast<double>(fastest_.size());
  mean_ += (rate - mean_) * std::max(kWeight, 1.0 / windows);
  if (fastest_.size() > kWindowsOfFastest) fastest_.pop_front();
}

double LinkMeter::fastest_bytes_per_second() const {
  return fastest_.size() < kWindowsOfFastest ? 0 : *std::ranges::max_element(fastest_);
}

void Link::Count(uint64_t LinkStats::*counter, uint64_t times) {
  absl::MutexLock lock(&mutex_);
  stats_.*counter += times;
}

void Link::Sent(uint64_t payload_bytes) {
  absl::MutexLock lock(&mutex_);
  stats_.payload_bytes += payload_bytes;
  stats_.bytes_in_flight += payload_bytes;
}

void Link::TakenBack(uint64_t payload_bytes) {
  absl::MutexLock lock(&mutex_);
  stats_.bytes_in_flight -= std::min(payload_bytes, stats_.bytes_in_flight);
  meter_.Interrupted();
}

void Link::Consumed(TimePoint now, uint64_t payload_bytes, uint64_t left_bytes) {
  absl::MutexLock lock(&mutex_);
  stats_.bytes_in_flight -= std::min(payload_bytes, stats_.bytes_in_flight);
  meter_.Arrived(now, payload_bytes, left_bytes);
  stats_.gigabytes_per_second = meter_.bytes_per_second() / 1e9;
  stats_.fastest_gigabytes_per_second = meter_.fastest_bytes_per_second() / 1e9;
}

void Link::Lost() {
  absl::MutexLock lock(&mutex_);
  stats_.bytes_in_flight = 0;
  meter_.Interrupted();
}

LinkStats Link::stats() const {
  absl::MutexLock lock(&mutex_);
  return stats_;
}

std::shared_ptr<Link> Links::Find(std::string_view peer) {
  absl::MutexLock lock(&mutex_);
  const auto is_peer = [peer](const auto& link) { return link->peer() == peer; };
  const auto known = std::ranges::find_if(links_, is_peer);
  if (known != links_.end()) return *known;
  if (links_.size() >= kCapacity) {
    // Forgets the oldest link that no connection uses. There is one unless there are kCapacity
    // connections.
    const auto is_unused = [](const auto& link) { return link.use_count() == 1; };
    const auto unused = std::ranges::find_if(links_, is_unused);
    if (unused != links_.end()) links_.erase(unused);
  }
  return links_.emplace_back(std::make_shared<Link>(peer, transport_));
}

std::vector<LinkStats> Links::stats() const {
  std::vector<std::shared_ptr<Link>> links;
  {
    absl::MutexLock lock(&mutex_);
    links = links_;
  }
  std::vector<LinkStats> stats;
  for (const auto& link : links) stats.push_back(link->stats());
  return stats;
}

}  // namespace tandem
