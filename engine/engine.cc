#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "engine/handoff/codec_workers.h"
#include "engine/handoff/kv_encoder.h"
#include "engine/handoff/landing_zone.h"
#include "engine/inbox.h"
#include "engine/loop/loop.h"
#include "engine/model_runner.h"
#include "engine/pool_size.h"
#include "engine/progress.h"
#include "engine/request_checks.h"
#include "engine/simulated/simulated_steps.h"
#include "kvstore/kv_convert.h"
#include "kvstore/kv_parts.h"
#include "kvstore/kv_store.h"
#include "model/transformer/forward.h"

namespace tandem {
namespace {

std::string_view Name(Role role) {
  switch (role) {
    case Role::kUnified:
      return "unified";
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
  }
  return "?";
}

Transformer::Limits LimitsFor(const EngineOptions& options) {
  return {.max_tokens = options.scheduler.max_step_tokens,
          .max_logit_rows = options.scheduler.max_sequences,
          .max_sequences = options.scheduler.max_sequences,
          .max_blocks_per_sequence = options.layout.BlocksFor(options.max_context_tokens),
          .max_context_tokens = options.max_context_tokens,
          .splits = options.splits};
}

// Sizes the KV pool to the memory that weights, activations and other processes leave, and limits
// the context length to what the pool can hold.
absl::Status SizePool(const Device& device, EngineOptions& options) {
  ASSIGN_OR_RETURN(options.num_blocks, BlocksThatFit(options.layout, options.device_memory_fraction,
                                                     options.reserved_device_bytes, device));
  const int64_t tokens = int64_t{options.num_blocks} * options.layout.block_tokens;
  options.max_context_tokens =
      static_cast<int32_t>(std::min<int64_t>(options.max_context_tokens, tokens));
  return absl::OkStatus();
}

absl::StatusOr<ConversionSlots> NewSlots(const EngineOptions& options, Device& device) {
  const int32_t count = options.role == Role::kDecode ? options.conversion_slots : 0;
  // A slot takes a payload of a peer: an extent, or the tables of its codecs.
  const int64_t slot_bytes =
      std::max(LargestExtentBytesTo(options.layout), MostTablesBytes(options.layout));
  return ConversionSlots::Create(device, count, slot_bytes);
}

// Whether this worker encodes or decodes the KV of hand-offs. Codecs read and write the KV in
// place, so the pool must be in the host's memory. The KV of simulated steps is not worth encoding.
// A prefill worker with quantised KV sends it as it is, because codecs take floats; a decode worker
// that keeps KV quantised still decodes the floats that its prefill workers send.
bool EncodesKv(const EngineOptions& options, const EngineParts& parts) {
  const bool has_floats = options.role == Role::kDecode || !IsQuantisedKv(options.layout.dtype);
  return options.role != Role::kUnified && options.codec_threads > 0 && parts.device.is_host() &&
         parts.simulated == nullptr && has_floats;
}

// Opens what writes the KV of hand-offs to files; null where the options ask for no files.
absl::StatusOr<std::unique_ptr<KvDumper>> NewDumper(const EngineOptions& options,
                                                    const EngineParts& parts) {
  if (options.kv_dump_directory.empty() || options.role != Role::kPrefill) return nullptr;
  if (!parts.device.is_host()) {
    return InvalidArgument("--kv-dump={}: KV in the memory of {} is not written to files",
                           options.kv_dump_directory, parts.device.name());
  }
  return KvDumper::Open({.directory = options.kv_dump_directory,
                         .most_bytes = options.kv_dump_bytes,
                         .layout = options.layout});
}

// The latest stats of an engine, written by its thread and read by any.
class PublishedStats {
 public:
  void Set(const EngineStats& stats) {
    absl::MutexLock lock(&mutex_);
    stats_ = stats;
  }
  EngineStats Get() const {
    absl::MutexLock lock(&mutex_);
    return stats_;
  }

 private:
  mutable absl::Mutex mutex_;
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
};

// Calls EngineParts::lost once, when the engine cannot serve any more. Thread: engine.
class LossReport {
 public:
  LossReport(const Device& device, std::function<void(const absl::Status&)> lost)
      : device_(device), lost_(std::move(lost)) {}

  // A step failed with `status`. When the device does not even report its memory any more, it will
  // not recover, and the engine is lost.
  void CheckDevice(const absl::Status& status) {
    if (!device_.Memory().ok()) Report(Annotate(status, device_.name() + " has failed"));
  }
  void Report(const absl::Status& why) {
    if (lost_ != nullptr) std::exchange(lost_, nullptr)(why);
  }

 private:
  const Device& device_;
  std::function<void(const absl::Status&)> lost_;  // null once it has been called
};

}  // namespace

// The parts of an engine in the order of their construction, and its thread.
class Engine::Impl {
 public:
  struct Made {
    std::unique_ptr<Inbox> inbox;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Transformer> transformer;      // null where steps are simulated
    std::unique_ptr<PrefixJournal> journal;        // of the prefix cache; null without one
    std::unique_ptr<KvStore> store;                // posts to the inbox, computes on the stream
    std::unique_ptr<StepComputation> computation;  // uses all of the members above
    std::unique_ptr<KvDumper> dumper;              // null: no KV is written to files
    LandingZone::Conversion conversion;  // converts to the store's pool; moved to the landing zone
  };

  static std::unique_ptr<StepComputation> NewComputation(const EngineParts& parts,
                                                         const Made& made);

  Impl(const EngineOptions& options, const EngineParts& parts, Made made)
      : options_(options),
        limits_({.vocab_size = parts.model.vocab_size,
                 .max_context_tokens = options.max_context_tokens,
                 .max_width =
                     std::min(options.scheduler.max_sequences, options.scheduler.max_step_tokens),
                 .sliding_window = parts.model.sliding_window}),
        clock_(parts.clock),
        loss_(parts.device, parts.lost),
        made_(std::move(made)),
        encoder_({.layout = options.layout,
                  .codec = options.wire_codec,
                  .probes = options.probes_codecs,
                  .sensitivity = options.kv_sensitivity},
                 parts.clock),
        zone_({.layout = options.layout,
               .epoch = options.epoch,
               .lease = options.reservation_lease,
               .workers = EncodesKv(options, parts) ? &workers_ : nullptr},
              made_.store->view(), std::move(made_.conversion), parts.clock, *made_.inbox),
        workers_(EncodesKv(options, parts) ? options.codec_threads : 0),
        loop_(options_, {.clock = parts.clock,
                         .device = parts.device,
                         .inbox = *made_.inbox,
                         .store = *made_.store,
                         .zone = zone_,
                         .encoding = {.encoder = EncodesKv(options, parts) ? &encoder_ : nullptr,
                                      .workers = EncodesKv(options, parts) ? &workers_ : nullptr,
                                      .dumper = made_.dumper.get()},
                         .computation = *made_.computation,
                         .stream = *made_.stream,
                         .vocab_size = parts.model.vocab_size,
                         .progress = progress_,
                         .publish = [this](const EngineStats& stats) { stats_.Set(stats); },
                         .failed = [this](const absl::Status& why) { loss_.CheckDevice(why); },
                         .lost = [this](const absl::Status& why) { loss_.Report(why); }}),
        thread_([this] {
          NameThisThread("engine");
          loop_.Run();
        }) {}

  void Submit(SubmitMessage message, Role role) {
    absl::Status status = CheckRole(role);
    if (status.ok()) status = CheckRequest(message.request, limits_);
    if (status.ok() && message.target && !message.request.so_far.empty()) {
      status = InvalidArgument("so_far: a prompt is computed from its start");
    }
    Admit(std::move(message), status);
  }

  void SubmitDecode(DecodeMessage message) {
    absl::Status status = CheckRole(Role::kDecode);
    if (status.ok()) status = CheckDecode(message.decode, limits_);
    Admit(std::move(message), status);
  }

  ReserveTicket Reserve(ReserveMessage message) {
    const ReserveTicket ticket(last_ticket_.fetch_add(1, std::memory_order_relaxed) + 1);
    message.ticket = ticket;
    message.asked = clock_.Now();
    if (absl::Status status = CheckRole(Role::kDecode); !status.ok()) {
      message.done(status);
      return ticket;
    }
    Message item = std::move(message);
    if (!made_.inbox->TryPush(std::move(item))) std::get<ReserveMessage>(item).done(Refusal());
    return ticket;
  }

  // Sends the engine thread a message of a kind that the inbox never refuses.
  void Tell(Message message) { made_.inbox->PushAlways(std::move(message)); }

  void Shutdown(TimePoint deadline) {
    std::call_once(shutdown_, [this, deadline] {
      Tell(ShutdownMessage{deadline});
      thread_.join();
    });
  }

  EngineStats stats() const {
    EngineStats stats = stats_.Get();
    // The dumper's own thread writes files, also while the engine is idle and publishes nothing.
    if (made_.dumper != nullptr) made_.dumper->AddTo(stats);
    return stats;
  }

  uint64_t progress() const { return progress_.count(); }
  TimePoint computed_at() const { return progress_.computed_at(); }

  TimePoint Now() const { return clock_.Now(); }
  const EngineOptions& options() const { return options_; }
  FrameReceiver* frame_receiver() { return &zone_; }
  std::span<const std::byte> kv_memory() const { return made_.store->memory(); }
  double kv_ratio_to(const std::string& address) const { return encoder_.RatioTo(address); }
  const PrefixJournal* prefix_journal() const { return made_.journal.get(); }

 private:
  absl::Status CheckRole(Role needed) const {
    if (options_.role == needed) return absl::OkStatus();
    return FailedPrecondition("a request for role {} came to a worker of role {}", Name(needed),
                              Name(options_.role));
  }

  // Stamps a message with the time of its acceptance and passes it to the engine thread. With an
  // error `status`, or when the inbox refuses it, ends the message's stream at once.
  template <typename Admission>
  void Admit(Admission message, const absl::Status& status) {
    if (!status.ok()) return message.stream.Fail(status);
    message.accepted = clock_.Now();
    Message item = std::move(message);
    // TryPush does not move from a message that it refuses.
    Admission& refused = std::get<Admission>(item);
    if (!made_.inbox->TryPush(std::move(item))) refused.stream.Fail(Refusal());
  }

  absl::Status Refusal() const {
    if (made_.inbox->closed()) return Unavailable("this worker has shut down: retry elsewhere");
    return ResourceExhausted("the worker's inbox is full ({} messages): retry later",
                             options_.inbox_capacity);
  }

  const EngineOptions options_;
  const EngineLimits limits_;
  const Clock& clock_;
  LossReport loss_;
  PublishedStats stats_;
  std::atomic<uint64_t> last_ticket_ = 0;
  Made made_;
  KvEncoder encoder_;
  LandingZone zone_;
  CodecWorkers workers_;  // declared after what its jobs use, so that they end first
  Progress progress_{clock_};
  EngineLoop loop_;
  std::once_flag shutdown_;
  std::thread thread_;  // declared last: it runs on all of the members above
};

std::unique_ptr<StepComputation> Engine::Impl::NewComputation(const EngineParts& parts,
                                                              const Made& made) {
  if (parts.simulated == nullptr) {
    return std::make_unique<ModelRunner>(*made.transformer, parts.ops, *made.store, parts.device,
                                         *made.stream);
  }
  return std::make_unique<SimulatedSteps>(
      SimulatedSteps::Parts{.options = *parts.simulated,
                            .vocab_size = parts.model.vocab_size,
                            .ops = parts.ops,
                            .store = *made.store,
                            .stream = *made.stream,
                            .clock = parts.clock});
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options,
                                                       const EngineParts& parts) {
  EngineOptions complete = options;
  complete.scheduler.total_blocks = std::max(options.num_blocks, 1);
  complete.scheduler.block_tokens = options.layout.block_tokens;
  RETURN_IF_ERROR(CheckOptions(complete, parts.model));
  Impl::Made made;
  made.inbox = std::make_unique<Inbox>(complete.inbox_capacity);
  ASSIGN_OR_RETURN(made.stream, parts.device.NewComputeStream());
  if (parts.simulated != nullptr) {
    RETURN_IF_ERROR(CheckSimulatedSteps(complete, *parts.simulated));
  } else {
    ASSIGN_OR_RETURN(made.transformer,
                     Transformer::Create(parts.model, *parts.weights, parts.device, parts.ops,
                                         LimitsFor(complete)));
  }
  ASSIGN_OR_RETURN(made.conversion.slots, NewSlots(complete, parts.device));
  if (complete.num_blocks == 0) RETURN_IF_ERROR(SizePool(parts.device, complete));
  complete.scheduler.total_blocks = complete.num_blocks;
  const auto wake = [inbox = made.inbox.get()] { inbox->PushAlways(KvCopiedMessage{}); };
  if (complete.prefix_caching == PrefixCaching::kOn) {
    made.journal = std::make_unique<PrefixJournal>();
  }
  ASSIGN_OR_RETURN(made.store, KvStore::Create({.layout = complete.layout,
                                                .num_blocks = complete.num_blocks,
                                                .model_fingerprint = complete.model_fingerprint,
                                                .prefix_caching = complete.prefix_caching,
                                                .eviction = complete.eviction,
                                                .host_bytes = complete.host_bytes,
                                                .host_codec = complete.host_codec,
                                                .journal = made.journal.get(),
                                                .shared = complete.share_kv},
                                               parts.device, *made.stream, wake));
  ASSIGN_OR_RETURN(made.dumper, NewDumper(complete, parts));
  made.computation = Impl::NewComputation(parts, made);
  ASSIGN_OR_RETURN(
      made.conversion.converter,
      KvConverter::Create(parts.device, parts.ops, complete.layout, made.store->view()));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(complete, parts, std::move(made))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() { Shutdown(impl_->Now()); }

FrameReceiver* Engine::frame_receiver() { return impl_->frame_receiver(); }

std::span<const std::byte> Engine::kv_memory() const { return impl_->kv_memory(); }

double Engine::kv_ratio_to(const std::string& data_address) const {
  return impl_->kv_ratio_to(data_address);
}

const PrefixJournal* Engine::prefix_journal() const { return impl_->prefix_journal(); }

void Engine::SetTransport(Transport* transport) { impl_->Tell(TransportMessage{transport}); }

void Engine::Submit(EngineRequest request, std::unique_ptr<TokenSink> sink) {
  impl_->Submit({.request = std::move(request), .stream = OutputStream(std::move(sink))},
                Role::kUnified);
}

void Engine::SubmitPrefill(EngineRequest request, HandoffTarget target,
                           std::unique_ptr<TokenSink> sink) {
  impl_->Submit({.request = std::move(request),
                 .target = std::move(target),
                 .stream = OutputStream(std::move(sink))},
                Role::kPrefill);
}

ReserveTicket Engine::Reserve(const ReserveRequest& request,
                              std::function<void(absl::StatusOr<Reservation>)> done) {
  return impl_->Reserve({.request = request, .done = std::move(done)});
}

void Engine::CancelReserve(ReserveTicket ticket) { impl_->Tell(CancelReserveMessage{ticket}); }

void Engine::SubmitDecode(DecodeRequest request, std::unique_ptr<TokenSink> sink) {
  impl_->SubmitDecode({.decode = std::move(request), .stream = OutputStream(std::move(sink))});
}

void Engine::Cancel(RequestId id, absl::Status status) {
  if (status.ok()) status = Cancelled("the request was cancelled");
  impl_->Tell(CancelMessage{id, std::move(status)});
}

void Engine::EndChoice(RequestId id, int32_t index) {
  impl_->Tell(EndChoiceMessage{.id = id, .index = index});
}

void Engine::Release(ReservationId id) { impl_->Tell(ReleaseMessage{id}); }

void Engine::ReleaseOf(RequestId id) { impl_->Tell(ReleaseMessage{id}); }

void Engine::Shutdown(TimePoint deadline) { impl_->Shutdown(deadline); }

EngineStats Engine::stats() const { return impl_->stats(); }

uint64_t Engine::progress() const { return impl_->progress(); }

TimePoint Engine::computed_at() const { return impl_->computed_at(); }

const EngineOptions& Engine::options() const { return impl_->options(); }

}  // namespace tandem
