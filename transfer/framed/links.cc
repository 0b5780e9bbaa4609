#include "transfer/framed/links.h"

#include <algorithm>

namespace tandem {

Link::Link(std::string_view peer, std::string_view transport)
    : stats_{.peer = std::string(peer), .transport = std::string(transport)} {}

void Link::Connected() {
  absl::MutexLock lock(&mutex_);
  ++stats_.connects;
}

void Link::StreamOpened() {
  absl::MutexLock lock(&mutex_);
  ++stats_.streams;
}

void Link::StreamFailed() {
  absl::MutexLock lock(&mutex_);
  ++stats_.streams_failed;
}

void Link::Resent(uint64_t frames) {
  absl::MutexLock lock(&mutex_);
  stats_.resent_frames += frames;
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
  const std::string name(peer);
  if (const auto place = links_.find(name); place != links_.end()) return place->second;
  if (order_.size() >= kCapacity) {
    // Forgets the oldest link that no connection uses. There is one unless there are kCapacity
    // connections.
    const auto unused = std::find_if(order_.begin(), order_.end(), [&](const std::string& known) {
      mutex_.AssertHeld();
      return links_.at(known).use_count() == 1;
    });
    if (unused != order_.end()) {
      links_.erase(*unused);
      order_.erase(unused);
    }
  }
  auto link = std::make_shared<Link>(peer, transport_);
  links_[name] = link;
  order_.push_back(name);
  return link;
}

std::vector<LinkStats> Links::stats() const {
  std::vector<std::shared_ptr<Link>> links;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::string& name : order_) links.push_back(links_.at(name));
  }
  std::vector<LinkStats> stats;
  for (const auto& link : links) stats.push_back(link->stats());
  return stats;
}

}  // namespace tandem
