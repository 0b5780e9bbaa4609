#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "bench/simulator/timeline.h"
#include "bench/simulator/worker_config.h"
#include "bench/simulator/worker_store.h"
#include "engine/handoff/admission_queue.h"
#include "engine/stats.h"
#include "scheduler/scheduler.h"

namespace tandem::simulator {

// The reservations of a simulated decode worker: those that wait for room, in the engine's own
// AdmissionQueue, and those that wait for their KV or for the request that decodes from it. Leases
// are not simulated, because a simulated sender renews them without fail.
// Thread: one at a time.
class SimulatedReservations {
 public:
  using Done = std::function<void(absl::StatusOr<Reservation>)>;
  // Begins to decode from the sequence, whose KV is complete since the given moment.
  using StartDecode = std::function<void(SimulatedSequence&, TimePoint)>;

  struct Parts {
    Timeline& timeline;
    Scheduler& scheduler;
    WorkerStore& store;
    std::function<SequenceId()> new_id;
    StartDecode start_decode;
  };
  SimulatedReservations(const WorkerLimits& limits, Parts parts);

  void Reserve(ReserveTicket ticket, ReserveRequest request, PrefixKey key, TimePoint asked,
               Done done);
  void Cancel(ReserveTicket ticket);
  // The sequence that holds the blocks, for the request that decodes from them. NOT_FOUND when the
  // reservation was released.
  absl::StatusOr<SimulatedSequence*> Claim(ReservationId id);
  // The claim is filled in: it decodes as soon as its KV is there.
  void Ready(ReservationId id);
  void Arrived(ReservationId id);
  // The request that claimed the reservation, if one did; otherwise the blocks are free again.
  std::optional<SequenceId> Release(ReservationId id);
  // What a request waits for, or has reserved and not claimed.
  void ReleaseOf(RequestId request);
  // The sequence of a claimed reservation has ended before its KV came.
  void Forget(SequenceId id);

  // Answers waiting reservations in their order, as far as there is room.
  void AdmitWaiting();
  // Rejects those that have waited too long for room.
  void ActOnTime();
  TimePoint NextExpiry() const { return waiting_.NextExpiry(); }

  void AddTo(EngineStats& stats) const;

 private:
  struct Incoming {
    SequenceId sequence;
    RequestId request;
    std::optional<TimePoint> arrived;  // when the KV was complete
    bool claimed = false;
    bool ready = false;
  };

  absl::StatusOr<Reservation> Take(const WaitingReservation& waiting);
  void StartIfComplete(ReservationId id);

  const Parts parts_;
  AdmissionQueue waiting_;
  absl::flat_hash_map<ReservationId, Incoming> incoming_;
  uint64_t next_id_ = 1;
  HandoffCounts counts_;
};

}  // namespace tandem::simulator
