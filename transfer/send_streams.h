#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "transfer/stream_key.h"
#include "transfer/transport.h"

namespace tandem {

// The streams that a transport sends and that have not ended: how many frames each has posted, all
// of which may be asked for again until it ends, and who is told, once, of its end. What every
// transport shares; it holds no payload and does no I/O. A serial tells one opening of a key from a
// later one, so that work queued for an aborted stream is never taken for its successor's.
// Thread-safe.
class SendStreams {
 public:
  explicit SendStreams(uint64_t max_frames) : max_frames_(max_frames) {}

  // The serial. UNAVAILABLE after Close; INTERNAL when the key is open already.
  absl::StatusOr<uint64_t> Open(StreamKey key, StreamEnded ended);

  // Counts a data frame for each of `extents`, or none when it fails, and gives the serial; empty
  // when the stream has ended. RESOURCE_EXHAUSTED when it would have too many; INVALID_ARGUMENT for
  // a size that no frame can have; INTERNAL after Finish.
  absl::StatusOr<std::optional<uint64_t>> Admit(StreamKey key,
                                                std::span<const PostedExtent> extents);

  struct Commit {
    uint64_t serial = 0;
    uint64_t frames = 0;  // data frames of the whole stream
  };
  // Empty when the stream has ended; INTERNAL when it was finished before.
  absl::StatusOr<std::optional<Commit>> Finish(StreamKey key);

  // The serial of an open stream.
  std::optional<uint64_t> Find(StreamKey key) const;

  // Forgets the stream, then calls its `ended`. Without effect when that opening has ended already.
  void End(StreamKey key, uint64_t serial, const absl::Status& status);

  // Ends all and refuses further ones.
  void Close(const absl::Status& status);

 private:
  struct Entry {
    uint64_t serial = 0;
    StreamEnded ended;
    uint64_t frames = 0;
    bool finished = false;
  };

  const uint64_t max_frames_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<StreamKey, Entry> open_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
