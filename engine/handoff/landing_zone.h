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

// Where the KV of one sequence shall land.
struct LandingPlan {
  std::vector<int32_t> blocks;  // of the pool, that the sequence lies in
  // How it comes: frames name blocks of this layout, which CanConvert to the pool's.
  KvLayout layout;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, in place already: nobody may write them
};

// Where incoming KV lands: says to the transport's thread, frame by frame, which place is meant,
// finds out whether all of a reservation's KV is there, and keeps its lease, which frames and
// renewals prolong and which ends on time however busy the engine thread is. The only part of a
// worker that two threads share. Payloads of the pool's own layout land in the pool, others in a
// slot. From there their tokens are converted into the pool, on its device: those of all slots that
// hold a verified payload together, when a slot is needed and there is none, and before a commit is
// answered. The transport's thread waits for that, at most for one lot of its own and one of
// another transport's thread. Whatever else the device does, the tokens are in place when it
// returns.
//
// One extent (layer, block of the sender) of a reservation:
//   empty    -> writing   Prepare; a landed one too, for a duplicate: what it will hold is unknown
//   writing  -> landed    Landed(OK); of another layout: converted
//   writing  -> empty     Landed(error): it is missing, and asked for again at the commit
// One reservation:
//   open      -> committed  Commit, all extents landed, none being written: frames that still come
//                           are dropped, further commits acknowledged again
//   open      -> broken     a commit of another number of frames: refuses everything with that
//   open      -> lapsed     nothing prolonged its lease in time: refuses everything as closed ones
//   any       -> closed     Close: gone at once, or once the writes in flight have landed, so that
//                           no block is given back under a write; what waits in slots is dropped
// Outcomes are told to the engine through the inbox.
// Thread-safe. No lock is held while tokens are converted.
class LandingZone final : public FrameReceiver {
 public:
  enum class Closing : uint8_t {
    kDone,      // nothing writes into the blocks
    kDraining,  // a write is in flight: KvDrainedMessage will follow
  };

  struct Options {
    KvLayout layout;     // of the pool
    uint64_t epoch = 0;  // of this engine; frames for another one come from strangers
    Duration lease{};
  };
  // For KV of other layouts: each slot takes LargestExtentBytesTo(layout).
  struct Conversion {
    ConversionSlots slots;
    std::unique_ptr<KvConverter> converter;
  };
  LandingZone(const Options& options, const KvPoolView& pool, Conversion conversion,
              const Clock& clock, Inbox& inbox);

  // Takes frames for `id`, which rises from call to call.
  void Open(ReservationId id, LandingPlan plan);
  // Refuses further frames and forgets the reservation, which must be open.
  Closing Close(ReservationId id);
  // Refuses all frames from here on with UNAVAILABLE.
  void ShutDown();
  // When the lease of `id` ends unless it is prolonged before; kept, as all its times, by this.
  TimePoint LeaseEnd(ReservationId id) const;
  // Of the bytes that are to come for `id`, how many have landed.
  uint64_t LandedBytes(ReservationId id) const;
  // Prolongs the lease, from now on.
  void Renew(ReservationId id);

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  CommitAnswer Commit(const FrameHeader& header) override;
  absl::Status Renewed(uint64_t stream, uint64_t epoch) override;

 private:
  enum class Extent : uint8_t { kEmpty, kWriting, kLanded };

  struct Landing {
    LandingPlan plan;
    bool direct = false;          // it comes in the pool's layout
    uint32_t first_block = 0;     // of the sender's, that holds a token that is not cached
    uint32_t num_blocks = 0;      // of the sender's
    std::vector<Extent> extents;  // [layer][block - first_block]
    absl::flat_hash_map<size_t, int32_t> slots;  // of the extents being written that need one
    int64_t num_landed = 0;
    int64_t num_verified = 0;  // of those being written: in their slots, whole
    int32_t num_writing = 0;
    TimePoint lease_end{};
    bool committed = false;
    bool closed = false;
    absl::Status broken;

    int64_t num_extents() const { return static_cast<int64_t>(extents.size()); }
  };

  // Those that frames may come for. PERMISSION_DENIED for another epoch and for what was never
  // given out, NOT_FOUND for what has ended, ALREADY_EXISTS for what is complete.
  absl::StatusOr<Landing*> Find(uint64_t stream, uint64_t epoch, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The extent that the header names, inside [0, landing.extents.size()). PERMISSION_DENIED when
  // the reservation has none such, of that size.
  absl::StatusOr<size_t> ExtentIndex(const FrameHeader& header, const Landing& landing) const;
  std::vector<MissingExtent> MissingOf(const Landing& landing) const;
  // The landing whose extent a prepared frame writes.
  Landing& Writing(const FrameHeader& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::byte*> PlaceFor(const FrameHeader& header, Landing& landing, size_t index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The extent holds its payload, or nothing; nobody writes it any more. True when that was what
  // the closed landing waited for: it is gone.
  bool Settle(const FrameHeader& header, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those of `id` that wait for their conversion will not be converted.
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
  std::vector<FrameHeader> verified_ ABSL_GUARDED_BY(mutex_);  // that wait for their conversion
  bool converting_ ABSL_GUARDED_BY(mutex_) = false;            // a thread has the converter
  const std::unique_ptr<KvConverter> converter_;               // of the thread that set that
  ReservationId latest_ ABSL_GUARDED_BY(mutex_);               // that was opened
  // The latest that were closed complete: their senders may have missed the acknowledgement.
  absl::flat_hash_set<ReservationId> completed_ ABSL_GUARDED_BY(mutex_);
  std::deque<ReservationId> completed_in_order_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
