#include "engine/loop/loop.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

// How long an idle engine waits for a message before it counts progress. Twice a second costs
// nothing that could be measured, and is frequent for a watchdog.
constexpr std::chrono::milliseconds kIdleWait(500);
constexpr std::chrono::milliseconds kStartingWait(20);  // interval of checking for loaded weights

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

// Whether a message pauses the measurement of steps: it needs KV blocks or steps, or ends the
// engine.
bool PausesMeasurement(const Message& message) {
  return std::holds_alternative<SubmitMessage>(message) ||
         std::holds_alternative<ReserveMessage>(message) ||
         std::holds_alternative<DecodeMessage>(message) ||
         std::holds_alternative<ShutdownMessage>(message);
}

// Adapts the scheduler's view of a request that is handed off: its output grows on the decode
// worker.
void SetHandoff(const SubmitMessage& message, SequenceSpec& spec) {
  const int32_t stored = StoredTokens(message.request.prompt.size(), message.request.eviction);
  const bool evicts = stored < spec.prompt_tokens && message.target->stored_tokens == stored;
  spec.max_total_tokens = spec.prompt_tokens;
  spec.kept_tokens = evicts ? stored : 0;
}

std::unique_ptr<RequestState> NewRequest(SubmitMessage& message) {
  auto request = std::make_unique<RequestState>(std::move(message.request));
  if (message.outgoing) request->handoff = *std::move(message.outgoing);
  request->stream = std::move(message.stream);
  request->accepted = message.accepted;
  return request;
}

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, Parts parts)
    : parts_(std::move(parts)),
      core_({.options = options,
             .clock = parts_.clock,
             .inbox = parts_.inbox,
             .store = parts_.store,
             .zone = parts_.zone,
             .encoding = parts_.encoding,
             .publish = [this] { Publish(); }}),
      handoffs_(core_),
      reservations_(core_),
      layer_stored_(LayerCallback(parts_.device)),
      measurement_(options,
                   {.store = parts_.store,
                    .stream = parts_.stream,
                    .computation = parts_.computation,
                    .vocab_size = parts_.vocab_size},
                   core_.costs),
      start_up_(parts_.computation, measurement_,
                layer_stored_ == nullptr ? DecodeSteps::kRecorded : DecodeSteps::kPlain,
                parts_.progress, parts_.failed, parts_.lost),
      canary_(options.canary_interval,
              {.store = parts_.store,
               .stream = parts_.stream,
               .computation = parts_.computation,
               .vocab_size = parts_.vocab_size},
              parts_.progress, parts_.failed),
      step_({.core = core_,
             .handoffs = handoffs_,
             .computation = parts_.computation,
             .progress = parts_.progress,
             .layer_stored = layer_stored_,
             .failed = parts_.failed}) {
  SetKnownCosts();
  Publish();
}

void EngineLoop::SetKnownCosts() {
  const StartCosts& known = core_.options.costs;
  if (!known.steps) return;
  const absl::Status set = core_.costs.SetModel(*known.steps, CostSource::kFile, known.error);
  TANDEM_CHECK(set.ok(), "the coefficients of the cost model were not validated");
}

void EngineLoop::Run() {
  MeasureCopies();
  bool idle = false;  // not at first: messages may have arrived during MeasureCopies
  while (!MayStop()) {
    HandleAll(idle ? AwaitMessages() : TakeMessages());
    ActOnTime(core_.clock.Now());
    const bool prepared = start_up_.Continue();
    idle = !(start_up_.warm() && step_.Run()) && !prepared;
    if (idle && !start_up_.starting() && !draining_) canary_.OnIdle(core_.clock.Now());
    core_.copies.Poll();
    reservations_.AdmitWaiting();
    if (core_.options.check_invariants) CheckInvariants();
    Publish();
  }
  Stop();
}

// Waits for messages. The waiting time is bounded, so that a watchdog can tell an idle engine from
// one that hangs. The bound is in real time, because the wait is.
std::vector<Message> EngineLoop::AwaitMessages() {
  const auto latest =
      std::chrono::steady_clock::now() + (start_up_.starting() ? kStartingWait : kIdleWait);
  std::vector<Message> messages = parts_.inbox.WaitAndDrain(std::min(WakeTime(), latest));
  parts_.progress.Count();
  // The measurement resumes only after a whole wait without a message, so that it hardly ever
  // delays the next request of a client that sends one after the other.
  const bool quiet = messages.empty() && std::chrono::steady_clock::now() >= latest;
  if (quiet && !draining_ && IsAtRest()) measurement_.Resume();
  return messages;
}

std::vector<Message> EngineLoop::TakeMessages() {
  std::vector<Message> messages = std::exchange(early_, {});
  std::vector<Message> later = parts_.inbox.Drain();
  std::move(later.begin(), later.end(), std::back_inserter(messages));
  return messages;
}

// The callback that is called for each layer of a step; null for none. A device that queues layers
// can run steps of decodes as recorded graphs, but only without a callback. So an engine on such a
// device has one only when it sends KV.
LayerStored EngineLoop::LayerCallback(const Device& device) {
  if (core_.options.role != Role::kPrefill) {
    if (!device.is_host()) return nullptr;
    return [this](int32_t) { parts_.progress.CountComputed(); };
  }
  return [this](int32_t layer) {
    parts_.progress.CountComputed();
    core_.sender.PostLayer(layer, step_.chunks());
    ReadAhead();
  };
}

// Reads messages during a step and opens the KV streams of new requests. A request that arrives
// during a long step waits until the step ends, but the lease of its reservation must be renewed
// earlier. Reading stops once as many messages have been read as the inbox may hold.
void EngineLoop::ReadAhead() {
  if (parts_.inbox.size() == 0 || early_.size() >= core_.options.inbox_capacity) return;
  for (Message& message : parts_.inbox.Drain()) {
    if (auto* submit = std::get_if<SubmitMessage>(&message)) handoffs_.Open(*submit);
    early_.push_back(std::move(message));
  }
}

void EngineLoop::ActOnTime(TimePoint now) {
  reservations_.ActOnTime(now);
  handoffs_.ReopenLost(now);
}

TimePoint EngineLoop::WakeTime() const {
  return std::min({core_.scheduler.NextDeadline(), reservations_.NextExpiry(),
                   core_.sender.NextReopen(), shutdown_deadline_});
}

// The scheduler must know the cost of a copy before its first preemption. So a few copies are
// measured at the start, and no step runs before they have ended.
void EngineLoop::MeasureCopies() {
  if (core_.options.host_bytes == 0) return;
  for (const int32_t blocks : {8, 1, 8, 1}) {
    core_.copies.StartProbe(blocks);
    while (core_.copies.probing()) HandleAll(AwaitMessages());
  }
}

bool EngineLoop::IsAtRest() const {
  return core_.requests.empty() && core_.receiver.num_reservations() == 0;
}

bool EngineLoop::MayStop() const {
  return draining_ && (core_.requests.empty() || core_.clock.Now() >= shutdown_deadline_);
}

void EngineLoop::BeginShutdown(TimePoint deadline) {
  draining_ = true;
  shutdown_deadline_ = deadline;
  reservations_.Drain();
}

void EngineLoop::Stop() {
  parts_.inbox.Close();
  HandleAll(TakeMessages());
  core_.requests.EndAll(ShuttingDown());
  core_.receiver.ShutDown();
  core_.store.ClearCache();
  if (core_.options.check_invariants) CheckInvariants();
  Publish();
}

void EngineLoop::HandleAll(std::vector<Message> messages) {
  for (Message& message : messages) {
    if (PausesMeasurement(message)) measurement_.Pause();
    Handle(message);
    parts_.progress.Count();
  }
}

void EngineLoop::Handle(Message& message) {
  RequestTable& requests = core_.requests;
  std::visit(Overloaded{
                 [&](SubmitMessage& one) { Submit(one); },
                 [&](ReserveMessage& one) { reservations_.Reserve(one); },
                 [&](CancelReserveMessage& one) { reservations_.Cancel(one); },
                 [&](DecodeMessage& one) { reservations_.Decode(one); },
                 [&](CancelMessage& one) {
                   if (RequestState* request = requests.Find(one.id))
                     requests.End(*request, one.status);
                 },
                 [&](EndChoiceMessage& one) {
                   RequestState* const request = requests.Find(one.id);
                   if (request != nullptr) core_.choices.EndEarly(*request, one.index);
                 },
                 [&](ReleaseMessage& one) { reservations_.Release(one); },
                 [&](ShutdownMessage& one) { BeginShutdown(one.deadline); },
                 [&](TransportMessage& one) { Attach(one.transport); },
                 [&](StreamEndedMessage& one) { handoffs_.Ended(one); },
                 [&](KvArrivedMessage& one) { reservations_.Arrived(one); },
                 [&](KvDrainedMessage& one) { reservations_.Drained(one); },
                 [&](KvCopiedMessage&) { core_.copies.Poll(); },
             },
             message);
}

void EngineLoop::Attach(Transport* transport) {
  transport_ = transport;
  core_.sender.Attach(transport);
}

void EngineLoop::Submit(SubmitMessage& message) {
  if (draining_) return Refuse(message, ShuttingDown());
  RequestTable& requests = core_.requests;
  if (absl::Status status = requests.CheckNew(message.request.id); !status.ok()) {
    return Refuse(message, status);
  }
  handoffs_.Open(message);
  if (message.outgoing && !message.outgoing->error.ok()) {
    return Refuse(message, message.outgoing->error);
  }
  if (!message.request.so_far.empty() && !message.target) {
    return core_.choices.Resume(NewRequest(message));
  }
  SequenceSpec spec = SpecOf(requests.NewSequenceId(), message.request);
  if (message.target) {
    SetHandoff(message, spec);
  } else {
    KeepAllWhereEvictionDoesNotFit(core_.scheduler, spec, message.request.eviction);
  }
  if (absl::Status status = core_.scheduler.Enqueue(spec, core_.clock.Now()); !status.ok()) {
    return Refuse(message, status);
  }
  requests.AddSequence(requests.Add(NewRequest(message)), spec.id);
}

void EngineLoop::Refuse(SubmitMessage& message, const absl::Status& status) {
  if (message.outgoing) core_.sender.Abort(*message.outgoing);
  message.stream.Fail(status);
}

void EngineLoop::Publish() {
  EngineStats stats;
  step_.AddTo(stats);
  reservations_.AddTo(stats);
  stats.starting = start_up_.starting();
  stats.scheduler = core_.scheduler.stats();
  stats.costs = core_.costs.state();
  stats.kv = core_.store.stats();
  const int32_t used = stats.kv.total_blocks - stats.kv.free_blocks - stats.kv.idle_blocks;
  if (measurement_.running()) {
    stats.kv.free_blocks += used;  // all held by the measurement, which yields to requests
  } else {
    most_used_blocks_ = std::max(most_used_blocks_, used);
  }
  stats.most_used_blocks = most_used_blocks_;
  stats.fragmentation = core_.requests.Fragmentation();
  stats.handoffs = core_.sender.num_open();
  stats.handoff_counts.sent = handoffs_.num_sent();
  if (parts_.encoding.encoder != nullptr) parts_.encoding.encoder->AddTo(stats);
  stats.handoff_counts.retried = core_.sender.num_reopened();
  stats.requests_accepted = core_.requests.num_accepted();
  stats.requests_finished = core_.requests.num_finished();
  stats.host_copied_blocks = core_.copies.copied_blocks();
  stats.host_copy_time = core_.copies.copy_time();
  if (transport_ != nullptr) {
    const TransportStats transport = transport_->stats();
    stats.kv_bytes_sent = transport.bytes_sent;
    stats.kv_bytes_received = transport.bytes_received;
  }
  parts_.publish(stats);
}

void EngineLoop::CheckInvariants() const {
  const absl::Status scheduler = core_.scheduler.CheckInvariants();
  TANDEM_CHECK(scheduler.ok(), scheduler.ToString());
  const absl::Status store = core_.store.CheckInvariants();
  TANDEM_CHECK(store.ok(), store.ToString());
  const bool at_rest = IsAtRest() && !measurement_.running();
  const KvStats stats = core_.store.stats();
  TANDEM_CHECK(!at_rest || (core_.requests.num_sequences() == 0 && core_.copies.empty()),
               "a sequence outlived its request");
  TANDEM_CHECK(!at_rest || stats.pinned_blocks > 0 ||
                   stats.free_blocks + stats.idle_blocks == stats.total_blocks,
               "a block leaked");
}

}  // namespace tandem
