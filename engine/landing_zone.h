#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/inbox.h"
#include "kernels/op_args.h"
#include "transfer/transport.h"

namespace tandem {

// Where incoming KV lands: says to the transport's thread, frame by frame, which place of the pool
// is meant, and finds out whether all of a reservation's KV is there. The only part of a worker
// that two threads share.
//
// One extent (layer, block) of a reservation:
//   empty    -> writing   Prepare; a landed one too, for a duplicate: what it will hold is unknown
//   writing  -> landed    Landed(OK)
//   writing  -> empty     Landed(error): the reservation is broken
// One reservation:
//   open      -> committed  Commit, all extents landed, none being written: refuses every frame
//   open      -> broken     a frame or a commit failed: refuses every frame with that status
//   any       -> closed     Close: gone at once, or once the writes in flight have landed, so that
//                           no block is given back under a write
// Outcomes are told to the engine through the inbox.
// Thread-safe.
class LandingZone final : public FrameReceiver {
 public:
  enum class Closing : uint8_t {
    kDone,      // nothing writes into the blocks
    kDraining,  // a write is in flight: KvDrainedMessage will follow
  };

  // `epoch`: of this engine; frames for another one are refused.
  LandingZone(const KvPoolView& pool, uint64_t epoch, const Clock& clock, Inbox& inbox);

  // Takes frames for `id`, whose sequence lies in `blocks` of the pool. Of these the first
  // `cached_blocks` are in place already: nobody may write into them.
  void Open(ReservationId id, std::span<const int32_t> blocks, int32_t cached_blocks);
  // Refuses further frames and forgets the reservation, which must be open.
  Closing Close(ReservationId id);
  // Refuses all frames from here on with UNAVAILABLE.
  void ShutDown();
  // When the latest frame for `id` was begun or landed, else when it was opened.
  TimePoint LatestFrame(ReservationId id) const;

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  CommitAnswer Commit(const FrameHeader& header) override;
  absl::Status Renewed(uint64_t stream, uint64_t epoch) override;

 private:
  enum class Extent : uint8_t { kEmpty, kWriting, kLanded };

  struct Landing {
    std::vector<int32_t> blocks;
    uint32_t cached_blocks = 0;
    std::vector<Extent> extents;  // [layer][block of the sequence]; cached ones stay empty
    int64_t num_landed = 0;
    int32_t num_writing = 0;
    TimePoint latest_frame{};
    bool committed = false;
    bool closed = false;
    absl::Status broken;
  };

  absl::StatusOr<Landing*> Find(const FrameHeader& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The extent that the header names, inside [0, extents.size()).
  absl::StatusOr<size_t> ExtentIndex(const FrameHeader& header, const Landing& landing) const;
  absl::Status CheckComplete(const FrameHeader& header, const Landing& landing) const;

  const KvPoolView pool_;
  const uint64_t epoch_;
  const Clock& clock_;
  Inbox& inbox_;

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<ReservationId, Landing> landings_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
