#include "transfer/framed/links.h"

#include <algorithm>

namespace tandem {

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
