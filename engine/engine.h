#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/beam_search.h"
#include "engine/output_stream.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kvstore/kv_layout.h"
#include "kvstore/kv_store.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/sampler.h"
#include "model/transformer/weight_store.h"
#include "scheduler/scheduler.h"
#include "transfer/transport.h"

namespace tandem {

enum class Role : uint8_t { kUnified, kPrefill, kDecode };

// What a choice had said when its worker was lost or left: it goes on behind these tokens.
struct OutputSoFar {
  std::vector<int32_t> token_ids;
  double cumulative_logprob = 0;
  bool ended = false;  // it needs no more
};

// One request as an engine gets it: tokens in, everything resolved.
struct EngineRequest {
  RequestId id;
  std::vector<int32_t> prompt;  // at least one token, each in [0, vocab)
  SamplingParams sampling;
  // Choices that are sampled, each with a seed of its own (ChoiceSeed), or hypotheses returned.
  int32_t n = 1;
  std::optional<BeamParams> beams;      // then of `sampling` only num_logprobs is looked at
  int32_t max_tokens = 0;               // at least 1
  std::vector<int32_t> stop_token_ids;  // EOS among them unless the client ignores it; sorted
  int32_t priority = 0;
  TimePoint deadline = kNoDeadline;
  std::string tenant;      // whose: tenants of equal priority get equal shares
  std::string cache_salt;  // prefixes are shared among equal salts only
  // Empty: from the start. Else one per choice: only the tokens behind these are emitted. Of a beam
  // search always empty.
  std::vector<OutputSoFar> so_far;

  // Rows of one decode step.
  int32_t width() const { return beams ? beams->width : n; }
};

// Where a prefill worker pushes the KV of a request, as the decode worker's Reserve answered.
struct HandoffTarget {
  std::string data_address;
  ReservationId reservation;
  uint64_t epoch = 0;
  int32_t cached_tokens = 0;  // of the prompt, that the decode worker has: their KV is not sent
  Duration lease{};           // it is renewed several times in that span; zero: never
};

struct Reservation {
  ReservationId id;
  uint64_t epoch = 0;         // this engine's incarnation
  int32_t cached_tokens = 0;  // of the prompt, held already: frames begin behind them
  Duration lease{};   // without a frame, a renewal or a claim for that long the blocks go back
  Duration queued{};  // waited for room
};

// One call of Reserve.
using ReserveTicket = StrongId<struct ReserveTicketTag, uint64_t>;

// What becomes of a reservation for which there is no room now.
enum class WhenFull : uint8_t { kWait, kRefuse };

struct ReserveRequest {
  RequestId id;
  std::vector<int32_t> prompt;
  int32_t max_tokens = 0;
  int32_t width = 1;  // rows that it will decode with: its choices, or its beams
  int32_t priority = 0;
  // Of the worker that will push. FAILED_PRECONDITION when it serves another model, or its KV
  // cannot be kept here without changing its values (CanConvert).
  KvLayout layout;
  uint64_t model_fingerprint = 0;
  TimePoint deadline = kNoDeadline;
  std::string tenant;
  std::string cache_salt;
  WhenFull when_full = WhenFull::kWait;
};

// A decode worker's part: the reservation with its KV, and what was sampled elsewhere: the first
// token of each choice (emitted there and not emitted again; those that end with it have ended
// there), or for beams the one that OnBeamStart gave. Not looked at where request.so_far says more.
struct DecodeRequest {
  EngineRequest request;
  ReservationId reservation;
  std::vector<SampledToken> first_tokens;
};

struct EngineOptions {
  Role role = Role::kUnified;
  KvLayout layout;
  int32_t num_blocks = 0;  // of the KV pool; 0: as many as device_memory_fraction leaves
  // Of the memory of a device that is not the host, for weights, activations and KV together.
  double device_memory_fraction = 0.9;
  int64_t reserved_device_bytes = 0;  // of that memory: what the caller takes of it later
  int32_t max_context_tokens = 0;     // prompt and output together; at most the model's
  SchedulerOptions scheduler;         // total_blocks and block_tokens are set from the above
  uint64_t model_fingerprint = 0;
  uint64_t epoch = 0;  // unique per incarnation
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  EvictionKind eviction = EvictionKind::kLru;
  int64_t host_bytes = 0;  // budget of the host tier; 0: none
  size_t inbox_capacity = 4096;
  SplitMode splits = SplitMode::kBalanced;  // of attention; kFixed: no row sees its batch
  Duration reservation_lease = std::chrono::seconds(3);
  int32_t max_waiting_reservations = 256;  // for room; more are refused
  Duration max_reservation_wait = std::chrono::seconds(30);
  // Frames of peers with another layout that may be under way at once; each has room set aside, in
  // the device's memory, for the largest extent there is of this model. What comes beyond is sent
  // again. Role decode.
  int32_t conversion_slots = 32;
  // Layers of a chunk that have less KV wait for the next ones, all of a prompt's last chunk for
  // its first token: to post wakes the transport's thread, some 40 us of the engine's time on a
  // virtual machine, which short prompts would feel in their TTFT. Role prefill.
  int64_t least_post_bytes = int64_t{1} << 20;
  bool share_kv = false;  // the KV pool is memory that other processes can open (Device::Share)
  bool check_invariants = false;  // after every step; tests and debug builds
};

// Hand-offs since the start.
struct HandoffCounts {
  uint64_t sent = 0;      // acknowledged by the peer
  uint64_t received = 0;  // complete and verified
  uint64_t retried = 0;   // streams that were opened again after a loss
  uint64_t lapsed = 0;    // reservations whose lease or deadline ended
  uint64_t refused = 0;   // reservations for which there was no room in time
};

// A snapshot for status pages, heartbeats and tests. `kv.free_blocks` are in no sequence, nor
// cached.
struct EngineStats {
  bool starting = true;  // weights load, or what steps would do once is done ahead: answers wait
  SchedulerStats scheduler;
  KvStats kv;
  int32_t most_used_blocks = 0;       // that sequences held at any time since the start
  double fragmentation = 0;           // share of the slots in sequences' blocks that hold no token
  int32_t reservations = 0;           // KV awaited
  int32_t waiting_reservations = 0;   // for room
  int32_t draining_reservations = 0;  // of these: given up while a payload was being written
  int32_t handoffs = 0;               // KV being sent, or about to be
  HandoffCounts handoff_counts;
  uint64_t requests_accepted = 0;
  uint64_t requests_finished = 0;  // with any status
  uint64_t prompt_tokens = 0;      // computed
  uint64_t output_tokens = 0;      // sampled
  uint64_t steps = 0;
  uint64_t host_copied_blocks = 0;  // between device and host, in both directions
  Duration host_copy_time{};        // ... and how long these copies ran
  uint64_t kv_bytes_sent = 0;
  uint64_t kv_bytes_received = 0;
};

// The parts that an engine runs on; they outlive it. `clock` must run with real time, since idle
// waits do.
struct EngineParts {
  const ModelConfig& model;
  Device& device;
  Ops& ops;
  WeightStore& weights;
  const Clock& clock;
  // Called once, on the engine thread, when no request will be served any more, with the reason:
  // the device has failed for good, or the weights could not be loaded. May be empty.
  std::function<void(const absl::Status&)> lost;
};

// One worker's engine: one thread that owns sequences, block tables, pool, scheduler and hand-offs.
// It drains its inbox, asks the scheduler for a StepPlan, runs one forward pass over the ragged
// batch, samples, emits, and sends or receives KV in between. A step has ended on the device before
// the next is planned, so that its errors are its own and what the cost model learns is its time;
// only the tokens of decodes are waited for later, by their sampling. Every accepted request ends
// with exactly one OnFinish. Public calls are thread-safe and never block on a step.
class Engine {
 public:
  // Makes the pool, the activations and the thread. Errors as KvStore::Create, Transformer::Create
  // and BlocksThatFit.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        const EngineParts& parts);
  // Stops as Shutdown does.
  ~Engine();

  // Role prefill and decode: KV arrives and leaves through `transport`, which reaches the memory of
  // the device, and whose receiver is frame_receiver(). Call once, before any request. To take both
  // down: Shutdown, then the transport, then the engine.
  FrameReceiver* frame_receiver();
  // The memory of the KV pool, of the device that the engine was made with. Thread-safe, constant.
  std::span<const std::byte> kv_memory() const;
  void SetTransport(Transport* transport);

  // Prefill and decode here; with so_far from its prompt on, as after a preemption. Role unified.
  // What can be said at once is told to the sink on the calling thread, before this returns:
  // INVALID_ARGUMENT, FAILED_PRECONDITION (wrong role), RESOURCE_EXHAUSTED (inbox full),
  // UNAVAILABLE (shut down). The rest comes from the engine thread: RESOURCE_EXHAUSTED (queue
  // full), UNAVAILABLE (draining).
  void Submit(EngineRequest request, std::unique_ptr<TokenSink> sink);

  // Prefill here, decode elsewhere: emits the first token of each choice (or a beam start), pushes
  // the KV while it is computed and finishes with kHandedOff once the peer acknowledged all of it.
  // When the first tokens already end every choice (stop token, max_tokens 1), finishes with that
  // reason and sends no commit.
  // Role prefill.
  void SubmitPrefill(EngineRequest request, HandoffTarget target, std::unique_ptr<TokenSink> sink);

  // Sets blocks aside for KV that will come; waits for room, by priority and then arrival. `done`
  // is called once, on the engine thread or, when that cannot take it, on the calling one.
  // RESOURCE_EXHAUSTED with a RetryAfter when too many wait or it waited too long,
  // DEADLINE_EXCEEDED; INVALID_ARGUMENT when it could never fit. Role decode.
  ReserveTicket Reserve(const ReserveRequest& request,
                        std::function<void(absl::StatusOr<Reservation>)> done);
  // Nobody wants the answer any more: a reservation that waits ends with CANCELLED. One that was
  // made is not touched.
  void CancelReserve(ReserveTicket ticket);

  // Decodes from a reservation once its KV is complete and verified. NOT_FOUND for an unknown or
  // lapsed reservation; FAILED_PRECONDITION when it was made for another length or is claimed;
  // DATA_LOSS or UNAVAILABLE when its KV did not arrive whole.
  void SubmitDecode(DecodeRequest request, std::unique_ptr<TokenSink> sink);

  // One choice of a request needs no more tokens: it ends with kEnded. Ignored for one that is
  // unknown or has ended.
  void EndChoice(RequestId id, int32_t index);
  // Ends the request, in whatever state, with CANCELLED (or `status`); unknown ids are ignored.
  void Cancel(RequestId id, absl::Status status);
  // Gives a reservation back that no Decode will claim; a request that waits for its KV ends with
  // CANCELLED.
  void Release(ReservationId id);

  // Accepts nothing new (but decodes of what is reserved); returns when all requests have ended or
  // at `deadline`, then fails the rest with UNAVAILABLE, gives all blocks back and ends the thread.
  // Idempotent.
  void Shutdown(TimePoint deadline);

  EngineStats stats() const;
  // What tells an engine that waits from one that hangs: rises with every message, every step, on a
  // device that is the host every layer, and with nothing to do twice a second. Takes no lock.
  uint64_t progress() const;
  const EngineOptions& options() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
