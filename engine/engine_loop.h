#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/engine.h"
#include "engine/inbox.h"
#include "engine/kv_receiver.h"
#include "engine/kv_sender.h"
#include "engine/landing_zone.h"
#include "engine/model_runner.h"
#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "scheduler/scheduler.h"

namespace tandem {

// What the engine thread does, and all that it owns: handles messages, asks the scheduler for a
// step, runs it, delivers its tokens, starts and ends hand-offs.
//
// A request enters as a Sequence by SubmitMessage or DecodeMessage and leaves by End alone, which
// gives back what it holds and tells its stream.
// Thread: engine, but for the constructor.
class EngineLoop {
 public:
  struct Parts {
    const Clock& clock;
    Inbox& inbox;
    KvStore& store;
    LandingZone& zone;
    ModelRunner& runner;
    std::function<void(const EngineStats&)> publish;
  };

  // `options` must outlive it, validated.
  EngineLoop(const EngineOptions& options, Parts parts);

  // Serves until a ShutdownMessage; closes the inbox and answers what is still in it.
  void Run();

 private:
  void Handle(SubmitMessage& message);
  void Handle(ReserveMessage& message);
  void Handle(DecodeMessage& message);
  void Handle(CancelMessage& message);
  void Handle(ReleaseMessage& message);
  void Handle(ShutdownMessage& message);
  void Handle(TransportMessage& message);
  void Handle(StreamEndedMessage& message);
  void Handle(KvArrivedMessage& message);
  void Handle(KvDrainedMessage& message);
  void HandleAll(std::vector<Message> messages);

  // One step, if there is anything to compute; whether there was.
  bool Step();
  void BuildChunks(const StepPlan& plan, TimePoint now);
  void BeginPrefill(Sequence& sequence, TimePoint now);
  void Collect(TimePoint computed);
  void Deliver(const Chunk& chunk, absl::StatusOr<SampledToken>& token, TimePoint computed);
  void EndPrefill(Sequence& sequence, TimePoint computed);
  void HandOff(Sequence& sequence);
  // Decodes from the KV that the sequence was waiting for and that is complete since `arrived`.
  void StartDecode(Sequence& sequence, TimePoint arrived);

  absl::Status CheckNew(const EngineRequest& request) const;
  Sequence& Add(std::unique_ptr<Sequence> sequence);
  Sequence* Find(SequenceId id);
  // The only way out for a request. With an OK status for `reason`.
  void End(Sequence& sequence, const absl::Status& status) { End(sequence, {.status = status}); }
  void End(Sequence& sequence, FinishInfo info);

  void EndLapsedReservations(TimePoint now);
  TimePoint WakeTime() const;
  bool MayStop() const;
  void Stop();
  void CheckInvariants() const;
  void Publish();

  const EngineOptions& options_;
  const Clock& clock_;
  Inbox& inbox_;
  KvStore& store_;
  ModelRunner& runner_;
  const std::function<void(const EngineStats&)> publish_;
  const LayerStored on_layer_stored_;  // empty where no KV is sent

  Scheduler scheduler_;
  KvSender sender_;
  KvReceiver receiver_;
  Transport* transport_ = nullptr;

  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  absl::flat_hash_map<RequestId, SequenceId> by_request_;
  uint64_t next_sequence_ = 1;
  std::vector<Chunk> chunks_;  // of the step in progress
  bool draining_ = false;
  TimePoint shutdown_deadline_ = kNoDeadline;
  EngineStats counts_;  // the fields that count events
};

}  // namespace tandem
