#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/support/payload_memory.h"
#include "transfer/stream_key.h"
#include "transfer/transport.h"

namespace tandem {

// How long a test waits for what must happen: far beyond what it takes, so that only a hang fails.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// `size` bytes that differ from those of another seed.
std::vector<std::byte> PatternBytes(size_t size, uint64_t seed);

// Posts an extent by itself.
inline absl::Status PostOne(Transport& transport, StreamKey key, const PostedExtent& extent) {
  return transport.Post(key.stream, key.epoch, {&extent, 1});
}

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
