#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/handoff/codec_workers.h"
#include "engine/handoff/conversion.h"
#include "engine/handoff/landing.h"
#include "engine/handoff/recent_ids.h"
#include "engine/inbox.h"
#include "engine/request.h"
#include "kernels/op_args.h"
#include "kvstore/kv_layout.h"
#include "transfer/transport.h"

namespace tandem {

// Receives incoming KV: it gives the transport's thread the memory into which to write the payload
// of each frame, knows whether all KV of a reservation has arrived, and keeps its lease. Frames and
// renewals extend the lease, and it ends on time however busy the engine thread is. The engine
// thread, the transports' threads and the codec workers share it.
//
// Payloads in the layout of the pool are written into the pool, others into a slot. From the slots
// their tokens are converted into the pool, on its device, all verified payloads together. This
// happens when a slot is needed and none is free, and before a commit is answered. The transport's
// thread waits for it, at most for one conversion of its own and one of another transport's thread.
//
// Encoded payloads are written into a slot, too. A codec worker decodes each when it is verified:
// into the pool, or, in another layout, into its slot, to be converted. When a slot is needed and
// none is free, and before a commit is answered, the transport's thread waits for codec workers,
// which themselves wait for no other thread.
//
// States of one extent (layer, block of the sender) of a reservation:
//   empty    -> writing   Prepare
//   landed   -> writing   Prepare of a duplicate: the bytes are unknown until it has landed
//   writing  -> landed    Landed(OK), and the payload is decoded and converted if it must be
//   writing  -> empty     Landed(error), or it could not be decoded: the extent is requested again
//                         at the commit
// States of one reservation:
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
    kDone,      // nothing is being written into the blocks
    kDraining,  // a write is in flight: KvDrainedMessage will follow
  };

  struct Options {
    KvLayout layout;     // layout of the pool
    uint64_t epoch = 0;  // this engine's epoch; frames for another epoch are refused
    Duration lease{};
    // The threads that decode encoded KV; they must be destroyed before the zone. Null where the
    // pool is not in the host's memory: then nothing encoded is accepted.
    CodecWorkers* workers = nullptr;
  };
  // The slots and the converter for KV that is encoded or in other layouts. Each slot has
  // LargestExtentBytesTo(layout) bytes.
  struct Conversion {
    ConversionSlots slots;
    std::unique_ptr<KvConverter> converter;
  };
  LandingZone(const Options& options, const KvPoolView& pool, Conversion conversion,
              const Clock& clock, Inbox& inbox);

  // Accepts frames for `id` from now on, and returns what can be read besides raw extents. Ids must
  // rise from call to call.
  ReadableKv Open(ReservationId id, LandingPlan plan);
  // Refuses further frames and forgets the reservation, which must be open.
  Closing Close(ReservationId id);
  // Refuses all frames from now on with UNAVAILABLE.
  void ShutDown();
  // The time at which the lease of `id` ends unless it is extended before then.
  TimePoint LeaseEnd(ReservationId id) const;
  // How many of the expected bytes of KV for `id` have landed.
  uint64_t LandedBytes(ReservationId id) const;
  // Extends the lease to its full length from now on.
  void Renew(ReservationId id);

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  CommitAnswer Commit(const FrameHeader& header) override;
  absl::Status Renewed(uint64_t stream, uint64_t epoch) override;

 private:
  // Finds a reservation that accepts frames. PERMISSION_DENIED for another epoch and for a
  // reservation that was never made, NOT_FOUND for one that has ended, ALREADY_EXISTS for one that
  // is complete.
  absl::StatusOr<Landing*> Find(uint64_t stream, uint64_t epoch, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The landing of a frame whose payload is being written after Prepare.
  Landing& Writing(const FrameHeader& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::byte*> PlaceFor(const FrameHeader& header, Landing& landing, size_t index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes that the write of an extent has ended, with an OK status when its payload is in the pool.
  // Returns true when the landing was closed and this was its last write: it is deleted then.
  bool Settle(const FrameHeader& header, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops the verified payloads of `id` that are still in slots.
  void DropVerified(ReservationId id, Landing& landing) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom();
  // Waits until no payload of `id` is being decoded.
  void AwaitDecoded(ReservationId id);
  // Adds the codec tables in the frame's slot to the decoders of this reservation and of later
  // ones.
  absl::Status TakeTables(const FrameHeader& header, Landing& landing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A decoder that has all tables, and that decodes rounded KV where the class allows it.
  FrameDecoder DecoderFor(KvQuality quality) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Decodes the payload in the frame's slot. Thread: a codec worker.
  void Decode(const FrameHeader& header);
  void ConvertVerified();
  std::vector<FrameHeader> TakeVerified() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const KvPoolView pool_;
  const Clock& clock_;
  Inbox& inbox_;

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<ReservationId, std::unique_ptr<Landing>> landings_ ABSL_GUARDED_BY(mutex_);
  ConversionSlots slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<FrameHeader> verified_ ABSL_GUARDED_BY(mutex_);  // payloads in slots, to be converted
  bool converting_ ABSL_GUARDED_BY(mutex_) = false;            // a thread is using the converter
  int32_t num_decoding_ ABSL_GUARDED_BY(mutex_) = 0;           // payloads that codec workers decode
  FrameDecoder decoder_ ABSL_GUARDED_BY(mutex_);  // has the tables that senders brought
  const std::unique_ptr<KvConverter> converter_;  // used only by the thread that set converting_
  ReservationId latest_ ABSL_GUARDED_BY(mutex_);  // id of the reservation that was opened last
  // Ids of reservations that were complete when they were closed. Their senders may have missed the
  // acknowledgement and commit again.
  RecentIds<ReservationId> completed_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
