#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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
#include "engine/handoff/receiver.h"
#include "engine/handoff/sender.h"
#include "engine/inbox.h"
#include "engine/model_runner.h"
#include "engine/options.h"
#include "engine/progress.h"
#include "engine/request.h"
#include "engine/sequence.h"
#include "engine/stats.h"
#include "engine/store_view.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model.h"
#include "scheduler/scheduler.h"

namespace tandem {

// Of those that come too late to be served here.
absl::Status ShuttingDown();

// What the engine thread does, and all that it owns: handles messages, asks the scheduler for a
// step, runs it, delivers its tokens, starts and ends hand-offs.
//   engine_loop.cc    requests, the loop
//   engine_handoff.cc reservations and KV streams
//   engine_plan.cc    a plan's preemptions, admissions and swaps
//   engine_step.cc    one step: plan, run, deliver
//   engine_choice.cc  forks of a request, and its end
//
// A request enters by SubmitMessage or DecodeMessage and leaves by End alone, which gives back what
// it holds and tells its stream.
// Thread: engine, but for the constructor.
class EngineLoop {
 public:
  struct Parts {
    const Clock& clock;
    const Device& device;
    Inbox& inbox;
    KvStore& store;
    LandingZone& zone;
    ModelRunner& runner;
    Progress& progress;
    std::function<void(const EngineStats&)> publish;
    std::function<void(const absl::Status&)> failed;  // a step, or the sampling of a token
    std::function<void(const absl::Status&)> lost;    // every step from now on; not only once
  };

  // `options` must outlive it, validated.
  EngineLoop(const EngineOptions& options, Parts parts);

  // Serves until a ShutdownMessage; closes the inbox and answers what is still in it.
  void Run();

 private:
  void Handle(SubmitMessage& message);
  void Handle(ReserveMessage& message);
  void Handle(CancelReserveMessage& message);
  void Handle(DecodeMessage& message);
  void Handle(CancelMessage& message);
  void Handle(EndChoiceMessage& message);
  void Handle(ReleaseMessage& message);
  void Handle(ShutdownMessage& message);
  void Handle(TransportMessage& message);
  void Handle(StreamEndedMessage& message);
  void Handle(KvArrivedMessage& message);
  void Handle(KvDrainedMessage& message);
  void Handle(KvCopiedMessage& message);
  void HandleAll(std::vector<Message> messages);
  std::vector<Message> AwaitMessages();
  std::vector<Message> TakeMessages();
  void Refuse(SubmitMessage& message, const absl::Status& status);
  LayerStored WhatFollowsALayer(const Device& device);
  // Takes note of the copies that have ended, and has the store copy ahead of evictions.
  void PollStore();

  bool Prepare();
  // A part of what is done before the first step.
  void WarmUp();
  // One step; whether there was anything to do.
  bool Step();
  void Apply(const StepPlan& plan, TimePoint now);
  void Expire(SequenceId id);
  void Preempt(const Preemption& preemption);
  void ForgetKv(Sequence& sequence);
  void Admit(const Admission& admission, TimePoint now);
  void ReservePrompt(SequenceId id);
  void BeginPrefill(Sequence& sequence, int32_t cached_tokens, TimePoint now);
  void StartSwapIn(SequenceId id);
  void MeasureCopies();
  void StartProbe(int32_t blocks);
  void GoOn(const KvCompletion& probe);
  void Handle(const KvCompletion& completion);
  void BuildChunks(const StepPlan& plan);
  void Observe(Duration took);
  void Collect(std::span<absl::StatusOr<SampledToken>> tokens, TimePoint computed);
  void Deliver(Sequence& sequence, int32_t computed_tokens,
               std::span<absl::StatusOr<SampledToken>> tokens, TimePoint computed);
  void DeliverFirst(Sequence& root, std::span<const SampledToken> first);
  void DeliverNext(Sequence& sequence, const SampledToken& token);
  void DeliverBeams(Sequence& sequence, std::span<const SampledToken> tokens);
  void EndPrefill(RequestState& request, TimePoint computed);
  void HandOff(Sequence& root);
  // Decodes from the KV that the request was waiting for and that is complete since `arrived`.
  void StartDecode(RequestState& request, TimePoint arrived);

  // The prompt is computed and `first` sampled: goes on with one sequence per choice that has not
  // ended with its first token.
  void ForkChoices(Sequence& root, std::span<const SampledToken> first);
  void AddFork(Sequence& root, int32_t index);
  // Goes on behind what was said elsewhere, one sequence per choice that has not ended: from the
  // prompt, as after a preemption; or, with its KV in `root`, behind that.
  void Resume(SubmitMessage& message);
  void ResumeFrom(Sequence& root);
  void GoOnBehind(Sequence& sequence, int32_t index);
  // The next step of a beam search, from the most probable tokens of each row.
  void AdvanceBeams(Sequence& sequence, std::span<const SampledToken> tops);
  void EmitHypotheses(RequestState& request);
  // One choice has ended; with the last one ends the request.
  void EndChoice(Sequence& sequence, FinishReason reason);

  absl::Status CheckNew(const EngineRequest& request) const;
  RequestState& Add(std::unique_ptr<RequestState> request);
  Sequence& AddSequence(RequestState& request, SequenceId id, PrefixKey key);
  Sequence* Find(SequenceId id);
  void Drop(Sequence& sequence);
  // The only way out for a request. With an OK status for `reason`.
  void End(RequestState& request, const absl::Status& status) { End(request, {.status = status}); }
  void End(RequestState& request, FinishInfo info);

  // What is due whether or not anybody says anything.
  void ActOnTime(TimePoint now);
  void EndLapsedReservations(TimePoint now);
  // Answers those that wait for room, in order, as far as there is some.
  void AdmitWaiting();
  void TurnAway(WaitingReservation& waiting, const absl::Status& status);
  void TurnAwayExpired(TimePoint now);
  void TurnAllAway();
  // Within a step.
  void OpenStreamsOfArrivals();
  void OpenStream(SubmitMessage& message);
  void ReopenLostStreams(TimePoint now);
  TimePoint WakeTime() const;
  bool MayStop() const;
  void Stop();
  void CheckInvariants() const;
  double Fragmentation() const;
  void Publish();

  const EngineOptions& options_;
  const Clock& clock_;
  Inbox& inbox_;
  KvStore& store_;
  ModelRunner& runner_;
  const std::function<void(const EngineStats&)> publish_;
  const std::function<void(const absl::Status&)> failed_;
  const std::function<void(const absl::Status&)> lost_;
  Progress& progress_;
  const LayerStored on_layer_stored_;

  absl::flat_hash_map<RequestId, std::unique_ptr<RequestState>> requests_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  absl::flat_hash_map<SwapId, SequenceId> swaps_;
  std::optional<SwapId> probe_;  // a swap that only measures
  uint64_t next_sequence_ = 1;

  StoreView view_;
  LatencyModel latency_;
  Scheduler scheduler_;
  KvSender sender_;
  KvReceiver receiver_;
  AdmissionQueue waiting_;
  Transport* transport_ = nullptr;

  std::vector<Chunk> chunks_;   // of the step in progress
  std::vector<Message> early_;  // taken from the inbox during that step, to be handled after it
  bool warm_;                   // the runner has warmed up, or has nothing to
  bool starting_ = true;        // weights load, or the runner warms up
  bool draining_ = false;
  TimePoint shutdown_deadline_ = kNoDeadline;
  EngineStats counts_;  // the fields that count events
};

}  // namespace tandem
