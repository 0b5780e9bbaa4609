#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/handoff/landing_zone.h"
#include "engine/handoff/outgoing_handoffs.h"
#include "engine/handoff/reservations.h"
#include "engine/inbox.h"
#include "engine/loop/canary_steps.h"
#include "engine/loop/core.h"
#include "engine/loop/cost_measurement.h"
#include "engine/loop/start_up.h"
#include "engine/loop/step.h"
#include "engine/options.h"
#include "engine/progress.h"
#include "engine/stats.h"
#include "engine/step_computation.h"
#include "kvstore/kv_store.h"

namespace tandem {

// The engine thread: it handles messages, acts on deadlines, and runs one step after another.
//   loop/core            the state that all parts work on
//   loop/request_table   requests and sequences, from Add to End
//   loop/choices         one sequence per choice, or beams, once a prompt is computed
//   loop/step            one step: plan, apply (plan_applier), compute, deliver (delivery)
//   loop/host_copies     KV that moves between device and host
//   handoff/reservations     KV that arrives from prefill workers
//   handoff/outgoing_handoffs  KV that goes to decode workers
// Thread: engine, but for the constructor.
class EngineLoop {
 public:
  struct Parts {
    const Clock& clock;
    const Device& device;
    Inbox& inbox;
    KvStore& store;
    LandingZone& zone;
    KvSender::Encoding encoding;
    StepComputation& computation;
    Stream& stream;  // the one that the store computes on
    int32_t vocab_size = 0;
    Progress& progress;
    std::function<void(const EngineStats&)> publish;
    std::function<void(const absl::Status&)> failed;  // a step or the sampling of a token failed
    // Called when every step from now on will fail, maybe more than once.
    std::function<void(const absl::Status&)> lost;
  };

  // `options` must be valid and outlive the loop, as must everything that `parts` refers to.
  EngineLoop(const EngineOptions& options, Parts parts);
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Serves until a ShutdownMessage. Then it closes the inbox and answers the messages in it.
  void Run();

 private:
  void Handle(Message& message);
  void HandleAll(std::vector<Message> messages);
  std::vector<Message> AwaitMessages();
  std::vector<Message> TakeMessages();
  // Reads messages during a step and opens the KV streams of the requests among them.
  void ReadAhead();
  void Submit(SubmitMessage& message);
  void Refuse(SubmitMessage& message, const absl::Status& status);
  void Attach(Transport* transport);
  void BeginShutdown(TimePoint deadline);

  LayerStored LayerCallback(const Device& device);
  void SetKnownCosts();
  void MeasureCopies();
  void ActOnTime(TimePoint now);
  TimePoint WakeTime() const;
  bool IsAtRest() const;
  bool MayStop() const;
  void Stop();
  void CheckInvariants() const;
  void Publish();

  const Parts parts_;
  EngineCore core_;
  OutgoingHandoffs handoffs_;
  Reservations reservations_;
  const LayerStored layer_stored_;
  CostMeasurement measurement_;
  StartUp start_up_;
  CanarySteps canary_;
  StepRunner step_;
  Transport* transport_ = nullptr;
  std::vector<Message> early_;  // messages read during a step, to be handled after it
  bool draining_ = false;
  TimePoint shutdown_deadline_ = kNoDeadline;
  int32_t most_used_blocks_ = 0;
};

}  // namespace tandem
