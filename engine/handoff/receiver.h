#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/handoff/admission_queue.h"
#include "engine/handoff/landing_zone.h"
#include "engine/handoff/states.h"
#include "engine/inbox.h"
#include "engine/options.h"
#include "engine/request.h"
#include "engine/store_view.h"
#include "kvstore/kv_store.h"
#include "scheduler/scheduler.h"

namespace tandem {

// A reservation whose lease or deadline has passed, the request that waits for it, if any, and the
// status that the request ends with.
struct ExpiredReservation {
  ReservationId reservation;
  std::optional<RequestId> claimed_by;
  absl::Status status;
};

// The receiving half of hand-offs: reservations, from the moment that blocks are promised until a
// request takes over the KV, or the blocks are freed. Their states are in engine/handoff/states.h;
// reservations that wait for room are in the AdmissionQueue. A reservation is claimed when a
// request waits for its KV, which may happen in any state. Thread: engine. Everything that the
// constructor takes must outlive it.
class KvReceiver {
 public:
  struct Parts {
    Scheduler& scheduler;
    KvStore& store;
    StoreView& view;
    LandingZone& zone;
    const Clock& clock;
  };
  KvReceiver(const EngineOptions& options, const Parts& parts);

  // Checks a reservation without looking for room: FAILED_PRECONDITION when the peers serve
  // different models or the KV cannot be converted, INVALID_ARGUMENT when the request could never
  // fit.
  absl::Status Check(const ReserveRequest& request) const;
  // Reserves blocks for a prompt, including those of its prefix that are cached here; the scheduler
  // knows the reservation as sequence `promise`. The request passed Check. RESOURCE_EXHAUSTED when
  // there is no room: the caller may try again.
  absl::StatusOr<Reservation> Reserve(WaitingReservation& waiting, SequenceId promise);

  // `request` waits for the KV of the reservation from here on. NOT_FOUND for a reservation that is
  // unknown or lapsed, FAILED_PRECONDITION when it was made for another request, the KV's own
  // status when that is broken.
  absl::Status Claim(ReservationId id, const EngineRequest& request);
  // How many of an existing reservation's bytes of KV have landed.
  uint64_t LandedBytes(ReservationId id) const { return zone_.LandedBytes(id); }
  // Whether all KV of a reservation is in place and verified.
  bool IsComplete(ReservationId id) const;
  // The dtype in which the KV of an existing reservation was sent, when the pool keeps it in a
  // wider one.
  std::optional<DType> NarrowerDType(ReservationId id) const;
  // Whether the request of an existing reservation evicts KV when its prompt is computed again
  // here, after a preemption. There may be room for the KV that arrives and none for evicting it
  // here.
  bool EvictsAgain(ReservationId id) const;
  // Hands over the blocks of a complete reservation. In the scheduler `successor`, a parked
  // sequence, replaces the reservation.
  BlockTable Take(ReservationId id, const SequenceSpec& successor);
  // Frees the blocks of a reservation; unknown ids are ignored.
  void Release(ReservationId id);
  // Frees the blocks that were reserved for `request`, if there are any and no request has claimed
  // them.
  void ReleaseUnclaimed(RequestId request);
  // The request that waits for the KV of reservation `id`, if `id` exists and is claimed.
  std::optional<RequestId> ClaimedBy(ReservationId id) const;

  void Arrived(const KvArrivedMessage& message);
  void Drained(ReservationId id);

  // The reservations whose lease or deadline has passed. They stay until they are released.
  std::vector<ExpiredReservation> Expired(TimePoint now);
  // The earliest time at which a reservation may expire.
  TimePoint NextExpiry() const;

  // Accepts no more frames and frees all blocks at once, even while a payload is being written: the
  // pool is not used again.
  void ShutDown();

  int32_t num_reservations() const { return static_cast<int32_t>(incoming_.size()); }
  // The number of reservations that have ended but whose blocks a payload is still being written
  // to.
  int32_t num_draining() const { return num_draining_; }

 private:
  struct Incoming {
    SequenceId promise;
    BlockTable table;
    ReserveRequest request;
    ReceiveState state = ReceiveState::kAwaited;
    absl::Status broken;
    std::optional<RequestId> claimed_by;
    bool evicts_again = false;  // what EvictsAgain returns
    TimePoint lease_end{};      // a lower bound; the landing zone has the exact time
    TimePoint deadline = kNoDeadline;
  };

  SequenceSpec SpecOfPromise(const ReserveRequest& request, SequenceId promise) const;
  int32_t BlocksToTake(const PrefixKey& key, const ReserveRequest& request) const;
  int32_t TakeBlocks(PrefixKey& key, Incoming& incoming);
  void Drop(ReservationId id);
  std::optional<ExpiredReservation> CheckExpiry(ReservationId id, Incoming& incoming,
                                                TimePoint now);

  const EngineOptions& options_;
  Scheduler& scheduler_;
  KvStore& store_;
  StoreView& view_;
  LandingZone& zone_;
  const Clock& clock_;
  absl::flat_hash_map<ReservationId, Incoming> incoming_;
  int32_t num_draining_ = 0;
  uint64_t next_id_ = 1;
};

}  // namespace tandem
