#include "transfer/framed/refused_streams.h"

namespace tandem {

void RefusedStreams::Add(StreamKey key, absl::StatusCode code) {
  if (!codes_.insert_or_assign(key, code).second) return;
  order_.push_back(key);
  if (order_.size() <= kCapacity) return;
  codes_.erase(order_.front());
  order_.pop_front();
}

std::optional<absl::StatusCode> RefusedStreams::Find(StreamKey key) const {
  const auto place = codes_.find(key);
  if (place == codes_.end()) return std::nullopt;
  return place->second;
}

}  // namespace tandem
