#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/handoff/conversion.h"
#include "engine/inbox.h"
#include "kernels/op_args.h"
#include "kvstore/kv_layout.h"
#include "transfer/transport.h"

namespace tandem {

// The place in the pool for the KV of one sequence.
struct LandingPlan {
  std::vector<int32_t> blocks;  // the sequence's blocks in the pool
  // The layout of the sender. Frames name blocks of this layout; CanConvert it to the pool's.
  KvLayout layout;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // tokens of the prompt that are in place already and must not change
};

// Receives incoming KV: it tells the transport's thread where to write the payload of each frame,
// knows whether all KV of a reservation has arrived, and keeps its lease. Frames and renewals
// extend the lease, and it ends on time however busy the engine thread is. This is the only part of
// a worker that two threads share.
//
// Payloads in the layout of the pool are written into the pool, others into a slot. From the slots
// their tokens are converted into the pool, on its device, all verified payloads together. This
// happens when a slot is needed and none is free, and before a commit is answered. The transport's
// thread waits for it, at most for one conversion of its own and one of another transport's thread.
//
// One extent (layer, block of the sender) of a reservation:
//   empty    -> writing   Prepare
//   landed   -> writing   Prepare of a duplicate: the bytes are unknown until it has landed
//   writing  -> landed    Landed(OK), and the payload is converted if it has another layout
//   writing  -> empty     Landed(error): the extent is requested again at the commit
// One reservation:
//   open      -> committed  Commit when all extents have landed: later frames are dropped, and
//                           later commits are acknowledged again
//   open      -> broken     a commit with another number of frames: everything is refused with that
//                           error
//   open      -> expired    nothing extended its lease in time: everything is refused, as if it was
//                           closed
//   any       -> closed     Close: it is forgotten at once, or after the writes in flight, so that
//                           no block is freed during a write; payloads in slots are dropped
// The engine learns of outcomes through the inbox.
// Thread-safe. No lock is held while tokens are converted.
class LandingZone final : public FrameReceiver {
 public:
  enum class Closing : uint8_t {
    kDone,      // nothing writes into the blocks
    kDraining,  // a write is in flight: KvDrainedMessage will follow
  };

  struct Options {
    KvLayout layout;     // of the pool
    uint64_t epoch = 0;  // of this engine; a frame for another one is from an unauthenticated peer
    Duration lease{};
  };
  // For KV in other layouts. Each slot has LargestExtentBytesTo(layout) bytes.
  struct Conversion {
    ConversionSlots slots;
    std::unique_ptr<KvConverter> converter;
  };
  LandingZone(const Options& options, const KvPoolView& pool, Conversion conversion,
              const Clock& clock, Inbox& inbox);

  // Accepts frames for `id` from now on. Ids must rise from call to call.
  void Open(ReservationId id, LandingPlan plan);
  // Refuses further frames and forgets the reservation, which must be open.
  Closing Close(ReservationId id);
  // Refuses all frames from now on with UNAVAILABLE.
  void ShutDown();
  // The time at which the lease of `id` ends unless it is extended before.
  TimePoint LeaseEnd(ReservationId id) const;
  // How many of the bytes that are expected for `id` have landed.
  uint64_t LandedBytes(ReservationId id) const;
  // Extends the lease to its full length from now on.
  void Renew(ReservationId id);

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  CommitAnswer Commit(const FrameHeader& header) override;
  absl::Status Renewed(uint64_t stream, uint64_t epoch) override;

 private:
  enum class Extent : uint8_t { kEmpty, kWriting, kLanded };

  struct Landing {
    LandingPlan plan;
    bool direct = false;          // the sender's layout is the pool's
    uint32_t first_block = 0;     // the sender's first block with a token that is not cached
    uint32_t num_blocks = 0;      // blocks of the sender
    std::vector<Extent> extents;  // [layer][block - first_block]
    absl::flat_hash_map<size_t, int32_t> slots;  // by extent, for those that use a slot
    int64_t num_landed = 0;
    int64_t num_verified = 0;  // verified payloads in slots; their extents count as being written
    int32_t num_writing = 0;
    TimePoint lease_end{};
    bool committed = false;
    bool closed = false;
    absl::Status broken;

    int64_t num_extents() const { return static_cast<int64_t>(extents.size()); }
  };

  // A reservation that accepts frames. PERMISSION_DENIED for another epoch and for a reservation
  // that was never made, NOT_FOUND for one that has ended, ALREADY_EXISTS for one that is complete.
  absl::StatusOr<Landing*> Find(uint64_t stream, uint64_t epoch, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The index of the extent that the header names, in [0, landing.extents.size()).
  // PERMISSION_DENIED when the reservation has no such extent of that size.
  absl::StatusOr<size_t> ExtentIndex(const FrameHeader& header, const Landing& landing) const;
  std::vector<MissingExtent> MissingOf(const Landing& landing) const;
  // The landing whose extent a prepared frame writes.
  Landing& Writing(const FrameHeader& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::byte*> PlaceFor(const FrameHeader& header, Landing& landing, size_t index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The write of an extent has ended, with an OK status when its payload is in the pool. Returns
  // true when the landing was closed and this was its last write: it is deleted then.
  bool Settle(const FrameHeader& header, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops the verified payloads of `id` in slots.
  void DropVerified(ReservationId id, Landing& landing) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom();
  void ConvertVerified();
  std::vector<FrameHeader> TakeVerified() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool nobody_converts() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !converting_; }
  void Remember(ReservationId completed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const KvPoolView pool_;
  const Clock& clock_;
  Inbox& inbox_;

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<ReservationId, std::unique_ptr<Landing>> landings_ ABSL_GUARDED_BY(mutex_);
  ConversionSlots slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<FrameHeader> verified_ ABSL_GUARDED_BY(mutex_);  // payloads to convert from slots
  bool converting_ ABSL_GUARDED_BY(mutex_) = false;            // a thread uses the converter
  const std::unique_ptr<KvConverter> converter_;  // used only by the thread that set converting_
  ReservationId latest_ ABSL_GUARDED_BY(mutex_);  // the latest that was opened
  // Reservations that were complete when they were closed. Their senders may have missed the
  // acknowledgement and commit again; the oldest are forgotten.
  absl::flat_hash_set<ReservationId> completed_ ABSL_GUARDED_BY(mutex_);
  std::deque<ReservationId> completed_in_order_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
