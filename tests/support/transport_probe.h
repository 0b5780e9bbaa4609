#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/support/payload_memory.h"
#include "transfer/transport.h"
#include "transfer/wire/frame.h"

namespace tandem {

// How long a test waits for what must happen: far beyond what it takes, so that only a hang fails.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// `size` bytes that differ from those of another seed.
std::vector<std::byte> PatternBytes(size_t size, uint64_t seed);

// Keeps the handles of the streams that a test opens, by transport and key, so that the test can
// name them by numbers. Thread-safe.
class StreamBook {
 public:
  absl::Status Open(Transport& transport, std::string_view peer, uint64_t stream, uint64_t epoch,
                    Duration renew_every, StreamEnded ended);
  // Of the latest opening; the stream must have been opened before.
  StreamHandle Find(const Transport& transport, StreamKey key) const;
  absl::Status Post(const Transport& transport, StreamKey key,
                    std::span<const PostedExtent> extents) const {
    return Find(transport, key)->Post(extents);
  }
  absl::Status PostOne(const Transport& transport, StreamKey key,
                       const PostedExtent& extent) const {
    return Post(transport, key, {&extent, 1});
  }
  absl::Status Finish(const Transport& transport, StreamKey key) const {
    return Find(transport, key)->Finish();
  }
  void Abort(const Transport& transport, StreamKey key) const { Find(transport, key)->Abort(); }

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::pair<const Transport*, StreamKey>, StreamHandle> handles_
      ABSL_GUARDED_BY(mutex_);
};

// A receiver that keeps what lands, and notes every call in its order. Policies answer; the
// default takes everything and commits a stream whose frames all landed; of others it takes the
// frames to be blocks 0, 1, 2... of layer 0, and asks for those that are missing.
class ReceiverProbe final : public FrameReceiver {
 public:
  // What lands lies in the memory of `device`; null: the host's.
  explicit ReceiverProbe(Device* device = nullptr) : memory_(device) {}

  struct Call {
    enum class Kind : uint8_t { kPrepare, kLanded, kCommit, kRenewed };
    Kind kind = Kind::kPrepare;
    FrameHeader header;
    absl::Status status;  // of kLanded: what was told; else: what was answered
  };

  // Set before the transport is made; called on its thread.
  std::function<absl::Status(const FrameHeader& header)> prepare_policy;
  std::function<CommitAnswer(const FrameHeader& header)> commit_policy;
  std::function<absl::Status(uint64_t stream)> renewed_policy;

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  CommitAnswer Commit(const FrameHeader& header) override;
  absl::Status Renewed(uint64_t stream, uint64_t epoch) override;

  // All calls so far, or of one stream.
  std::vector<Call> calls() const;
  std::vector<Call> CallsOf(uint64_t stream) const;
  int Count(uint64_t stream, Call::Kind kind) const;
  // What landed for (stream, layer, block); empty when nothing did.
  std::vector<std::byte> BytesOf(uint64_t stream, uint32_t layer, uint32_t block) const;
  // False when it took longer than kPatience.
  bool WaitFor(uint64_t stream, Call::Kind kind, int count) const;

 private:
  using Place = std::tuple<uint64_t, uint32_t, uint32_t>;

  CommitAnswer DefaultCommit(const FrameHeader& header) const;
  int CountLocked(uint64_t stream, Call::Kind kind) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
  PayloadMemory memory_;
  absl::flat_hash_map<Place, std::span<std::byte>> landed_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<Place> whole_ ABSL_GUARDED_BY(mutex_);  // landed and verified
};

// Hears how streams end, and how often.
class EndProbe {
 public:
  StreamEnded Callback();
  // The status of the first end of the stream. Fails the test and gives UNKNOWN when there is none
  // within kPatience.
  absl::Status Wait(uint64_t stream) const;
  int count(uint64_t stream) const;
  int total() const;

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::vector<absl::Status>> ends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
