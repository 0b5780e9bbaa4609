#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/options.h"
#include "engine/output_stream.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/weight_store.h"
#include "transfer/transport.h"

namespace tandem {

struct SimulatedStepsOptions;

// The parts that an engine runs on; they must outlive it. `clock` must run with real time, because
// idle waits do. Steps are computed with `weights`, or simulated: one of the two is given.
struct EngineParts {
  const ModelConfig& model;
  Device& device;
  Ops& ops;
  WeightStore* weights = nullptr;
  const SimulatedStepsOptions* simulated = nullptr;
  const Clock& clock;
  // Called once, on the engine thread, when no request will be served any more, with the reason:
  // the device has failed for good, or the weights could not be loaded. May be empty.
  std::function<void(const absl::Status&)> lost;
};

// One worker's engine: one thread that owns sequences, block tables, pool, scheduler and hand-offs.
// It drains its inbox, asks the scheduler for a StepPlan, runs one forward pass over the ragged
// batch, samples and emits, and it sends or receives KV in between. A step ends on the device
// before the next is planned, so that an error belongs to one step and the cost model learns the
// time of one step. Every accepted request ends with exactly one OnFinish. Thread-safe. Public
// calls never wait for a step.
class Engine {
 public:
  // Creates the KV pool, the activations and the engine thread. Errors are those of
  // KvStore::Create, Transformer::Create and BlocksThatFit.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        const EngineParts& parts);
  // Shuts down as Shutdown does, without waiting for requests.
  ~Engine();

  // Takes the KV that arrives. The transport of SetTransport must be created with it as its
  // receiver.
  FrameReceiver* frame_receiver();
  // The memory of the KV pool, on the device that the engine was created with. Thread-safe,
  // constant.
  std::span<const std::byte> kv_memory() const;
  // Role prefill and decode: KV arrives and leaves through `transport`, which reaches the memory of
  // the device, and whose receiver is frame_receiver(). Call once, before any request. To take both
  // down: Shutdown, then destroy the transport, then the engine.
  void SetTransport(Transport* transport);
  // The recent ratio of the KV's bytes to the bytes sent for it, to the decode worker with this
  // address; 1 where KV is sent as it is. Thread-safe.
  double kv_ratio_to(const std::string& data_address) const;
  // The hashes of the blocks that the prefix cache has; null where prefix caching is off.
  // Thread-safe, constant.
  const PrefixJournal* prefix_journal() const;

  // Prefills and decodes a request on this engine. A request with so_far is computed from its
  // prompt on, as after a preemption. Role unified.
  // Errors that are found at once go to the sink on the calling thread, before this returns:
  // INVALID_ARGUMENT, FAILED_PRECONDITION (wrong role), RESOURCE_EXHAUSTED (inbox full),
  // UNAVAILABLE (shut down). Later errors come from the engine thread, among them
  // RESOURCE_EXHAUSTED (queue full) and UNAVAILABLE (draining).
  void Submit(EngineRequest request, std::unique_ptr<TokenSink> sink);

  // Prefills a request here that is decoded by another worker: emits the first token of each choice
  // (or a beam start), pushes the KV while it is computed and finishes with kHandedOff once the
  // peer acknowledged all of it. When the first tokens already end every choice (stop token,
  // max_tokens 1), finishes with that reason and sends no commit.
  // Role prefill.
  void SubmitPrefill(EngineRequest request, HandoffTarget target, std::unique_ptr<TokenSink> sink);

  // Reserves blocks for KV that will arrive. The reservation waits for room, by priority and then
  // by arrival. `done` is called once, on the engine thread, or on the calling one when the request
  // is refused at once. Errors: RESOURCE_EXHAUSTED with a RetryAfter when too many reservations
  // wait or it waited too long, DEADLINE_EXCEEDED, INVALID_ARGUMENT when it could never fit. Role
  // decode.
  ReserveTicket Reserve(const ReserveRequest& request,
                        std::function<void(absl::StatusOr<Reservation>)> done);
  // The caller of Reserve no longer needs the answer: a reservation that waits ends with CANCELLED;
  // one that was already made stays.
  void CancelReserve(ReserveTicket ticket);

  // Decodes a request from a reservation once its KV is complete and verified. NOT_FOUND for an
  // unknown or expired reservation; FAILED_PRECONDITION when it was made for another length or
  // another request has claimed it; DATA_LOSS or UNAVAILABLE when its KV did not arrive whole.
  void SubmitDecode(DecodeRequest request, std::unique_ptr<TokenSink> sink);

  // One choice of a request needs no more tokens: the choice ends with kEnded. Ignored for a
  // request or choice that is unknown or has ended.
  void EndChoice(RequestId id, int32_t index);
  // Ends the request, in whatever state, with CANCELLED (or `status`); unknown ids are ignored.
  void Cancel(RequestId id, absl::Status status);
  // Releases a reservation that no SubmitDecode will claim. A request that waits for its KV ends
  // with CANCELLED.
  void Release(ReservationId id);
  // Releases what the request with this id has reserved, unless SubmitDecode has claimed it. A
  // reservation that waits for room ends with CANCELLED.
  void ReleaseOf(RequestId id);

  // Accepts no new requests except decodes from existing reservations. Waits until all requests
  // have ended or `deadline` has come, then fails the rest with UNAVAILABLE, frees all blocks and
  // ends the thread. Idempotent.
  void Shutdown(TimePoint deadline);

  EngineStats stats() const;
  // A counter that rises with every message and every step, with every layer where the device is
  // the host, and twice a second when there is nothing to do, so that a watchdog can tell an idle
  // engine from one that hangs. Takes no lock.
  uint64_t progress() const;
  // When a layer or a step last ended, on the engine's clock; the start of the engine before the
  // first one. To keep it recent, an idle engine runs a step every EngineOptions::canary_interval.
  // Takes no lock.
  TimePoint computed_at() const;
  const EngineOptions& options() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
