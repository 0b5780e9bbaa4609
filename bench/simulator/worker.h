#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/simulator/kv_sender.h"
#include "bench/simulator/reservations.h"
#include "bench/simulator/step_loop.h"
#include "bench/simulator/worker_core.h"

namespace tandem::simulator {

// One worker: the engine's loop around a real Scheduler, with counts in the place of KV, and steps
// that take as long as the cost model says. Its calls are those of Engine. A message that arrives
// during a step is handled when the step ends, as in the engine.
// Thread: one at a time.
class SimulatedWorker {
 public:
  // `timeline` and `digest` outlive it. The model of a prefill worker has a link.
  SimulatedWorker(WorkerConfig config, const WorkerLimits& limits, Timeline& timeline,
                  Digest& digest, SimulatedSender::Deliver deliver);

  void Submit(EngineRequest request, std::optional<HandoffTarget> target, OutputStream stream);
  ReserveTicket Reserve(ReserveRequest request, SimulatedReservations::Done done);
  void CancelReserve(ReserveTicket ticket);
  void Decode(DecodeRequest decode, OutputStream stream);
  void Cancel(RequestId id, absl::Status status);
  void Release(ReservationId id);
  void ReleaseOf(RequestId id);
  void KvArrived(ReservationId id);

  // It computes nothing and answers nothing from now on.
  void Kill() { core_.dead = true; }
  bool dead() const { return core_.dead; }
  void SetSlowdown(double slowdown) { core_.config.slowdown = slowdown; }

  const WorkerConfig& config() const { return core_.config; }
  std::string data_address() const { return "sim:" + core_.config.name; }
  // Whether it has no request and no reservation.
  bool idle() const { return core_.store.empty() && published_.waiting_reservations == 0; }
  const WorkerCore& core() const { return core_; }
  // As published after the latest turn of the loop.
  const EngineStats& stats() const { return published_; }

 private:
  void Post(std::function<void()> message);
  // Handles what has arrived and begins the next step, unless one runs.
  void Turn();
  // `accepted`: when the call arrived. Its wait for the end of a step is queueing, as in the
  // engine.
  void OnSubmit(EngineRequest& request, const std::optional<HandoffTarget>& target,
                TimePoint accepted, OutputStream& stream);
  void OnDecode(DecodeRequest& decode, TimePoint accepted, OutputStream& stream);
  void StartDecode(SimulatedSequence& sequence, TimePoint arrived);
  void WakeLater();
  void Publish();

  WorkerCore core_;
  std::optional<SimulatedSender> sender_;  // role prefill
  SimulatedReservations reservations_;
  StepLoop steps_;
  std::vector<std::function<void()>> inbox_;
  uint64_t next_ticket_ = 1;
  TimePoint wakes_at_ = kNoDeadline;
  bool turning_ = false;
  EngineStats published_;
};

}  // namespace tandem::simulator
