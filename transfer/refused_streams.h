#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "transfer/stream_key.h"

namespace tandem {

// The streams of one connection that the receiver has refused and whose remaining frames are
// dropped unasked. Remembers the latest kCapacity of them: a frame of an older one asks the
// receiver again, who refuses again.
// Thread: the transport's.
class RefusedStreams {
 public:
  static constexpr size_t kCapacity = 1024;

  void Add(StreamKey key, absl::StatusCode code);
  std::optional<absl::StatusCode> Find(StreamKey key) const;
  void Erase(StreamKey key) { codes_.erase(key); }

 private:
  absl::flat_hash_map<StreamKey, absl::StatusCode> codes_;
  std::deque<StreamKey> order_;  // may name streams that were erased
};

}  // namespace tandem
