#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "transfer/wire/frame.h"

namespace tandem {

// The streams of one connection that the receiver has refused. Their remaining frames are dropped
// without asking the receiver again. Only the latest kCapacity are remembered: for a frame of an
// older one the receiver is asked, and refuses, again.
// Thread: the transport's.
class RefusedStreams {
 public:
  static constexpr size_t kCapacity = 1024;

  void Add(StreamKey key, absl::StatusCode code) {
    if (!codes_.insert_or_assign(key, code).second) return;
    order_.push_back(key);
    if (order_.size() <= kCapacity) return;
    codes_.erase(order_.front());
    order_.pop_front();
  }
  std::optional<absl::StatusCode> Find(StreamKey key) const {
    const auto found = codes_.find(key);
    return found == codes_.end() ? std::nullopt : std::optional(found->second);
  }
  void Erase(StreamKey key) { codes_.erase(key); }

 private:
  absl::flat_hash_map<StreamKey, absl::StatusCode> codes_;
  std::deque<StreamKey> order_;  // may name streams that were erased
};

}  // namespace tandem
