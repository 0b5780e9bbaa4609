#include "engine/engine_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"

namespace tandem {
namespace {

// Twice a second costs nothing that could be measured, and is often beside a watchdog's patience.
constexpr std::chrono::milliseconds kIdleTurn(500);
constexpr std::chrono::milliseconds kStartingTurn(20);  // looks whether the weights are loaded

}  // namespace

absl::Status ShuttingDown() { return Unavailable("this worker is shutting down: retry elsewhere"); }

EngineLoop::EngineLoop(const EngineOptions& options, Parts parts)
    : options_(options),
      clock_(parts.clock),
      inbox_(parts.inbox),
      store_(parts.store),
      runner_(parts.runner),
      publish_(std::move(parts.publish)),
      failed_(std::move(parts.failed)),
      lost_(std::move(parts.lost)),
      progress_(parts.progress),
      on_layer_stored_(WhatFollowsALayer(parts.device)),
      view_(parts.store, [this](SequenceId id) -> const Sequence& { return *Find(id); }),
      scheduler_(options.scheduler, latency_),
      sender_(parts.store, parts.clock, parts.inbox, options.least_post_bytes),
      receiver_(options, {.scheduler = scheduler_,
                          .store = parts.store,
                          .view = view_,
                          .zone = parts.zone,
                          .clock = parts.clock}),
      waiting_(options.max_waiting_reservations, options.max_reservation_wait),
      warm_(!parts.runner.can_warm_up()) {
  Publish();
}

void EngineLoop::Run() {
  MeasureCopies();
  bool idle = false;  // requests may have come meanwhile
  while (!MayStop()) {
    HandleAll(idle ? AwaitMessages() : TakeMessages());
    ActOnTime(clock_.Now());
    const bool prepared = Prepare();
    idle = !(warm_ && Step()) && !prepared;
    PollStore();
    AdmitWaiting();
    if (options_.check_invariants) CheckInvariants();
    Publish();
  }
  Stop();
}

// An idle engine turns, too: nobody could tell one that waits from one that hangs. The turn is of
// real time, as the wait is.
std::vector<Message> EngineLoop::AwaitMessages() {
  const auto turn = std::chrono::steady_clock::now() + (starting_ ? kStartingTurn : kIdleTurn);
  std::vector<Message> messages = inbox_.WaitAndDrain(std::min(WakeTime(), turn));
  progress_.Count();
  return messages;
}

LayerStored EngineLoop::WhatFollowsALayer(const Device& device) {
  if (options_.role != Role::kPrefill) {
    // Where layers are queued at once, steps of decodes are recorded, but only without this.
    if (!device.is_host()) return nullptr;
    return [this](int32_t) { progress_.Count(); };
  }
  return [this](int32_t layer) {
    progress_.Count();
    sender_.PostLayer(layer, chunks_);
    OpenStreamsOfArrivals();
  };
}

std::vector<Message> EngineLoop::TakeMessages() {
  std::vector<Message> messages = std::exchange(early_, {});
  std::vector<Message> later = inbox_.Drain();
  std::move(later.begin(), later.end(), std::back_inserter(messages));
  return messages;
}

void EngineLoop::ActOnTime(TimePoint now) {
  EndLapsedReservations(now);
  TurnAwayExpired(now);
  ReopenLostStreams(now);
}

TimePoint EngineLoop::WakeTime() const {
  return std::min({scheduler_.NextDeadline(), receiver_.NextLapse(), waiting_.NextExpiry(),
                   sender_.NextReopen(), shutdown_deadline_});
}

bool EngineLoop::MayStop() const {
  return draining_ && (requests_.empty() || clock_.Now() >= shutdown_deadline_);
}

void EngineLoop::Stop() {
  draining_ = true;
  inbox_.Close();
  HandleAll(TakeMessages());
  TurnAllAway();
  while (!requests_.empty()) End(*requests_.begin()->second, ShuttingDown());
  receiver_.ShutDown();
  store_.ClearCache();
  if (options_.check_invariants) CheckInvariants();
  Publish();
}

void EngineLoop::HandleAll(std::vector<Message> messages) {
  for (Message& message : messages) {
    std::visit([this](auto& one) { Handle(one); }, message);
    progress_.Count();
  }
}

absl::Status EngineLoop::CheckNew(const EngineRequest& request) const {
  if (!requests_.contains(request.id)) return absl::OkStatus();
  return InvalidArgument("request id {} is in use: ids must be unique", request.id);
}

void EngineLoop::Handle(SubmitMessage& message) {
  if (draining_) return Refuse(message, ShuttingDown());
  if (absl::Status status = CheckNew(message.request); !status.ok()) {
    return Refuse(message, status);
  }
  OpenStream(message);
  if (message.outgoing && !message.outgoing->error.ok()) {
    return Refuse(message, message.outgoing->error);
  }
  if (!message.request.so_far.empty() && !message.target) return Resume(message);
  const SequenceId id(next_sequence_++);
  SequenceSpec spec = SpecOf(id, message.request);
  if (message.target) spec.max_total_tokens = spec.prompt_tokens;  // it grows elsewhere
  if (absl::Status status = scheduler_.Enqueue(spec, clock_.Now()); !status.ok()) {
    return Refuse(message, status);
  }
  auto request = std::make_unique<RequestState>(std::move(message.request));
  request->outgoing = std::move(message.outgoing);
  request->stream = std::move(message.stream);
  request->accepted = message.accepted;
  RequestState& added = Add(std::move(request));
  AddSequence(added, id, store_.NewKey(added.spec.cache_salt));
}

void EngineLoop::Refuse(SubmitMessage& message, const absl::Status& status) {
  if (message.outgoing) sender_.Abort(*message.outgoing);
  message.stream.Fail(status);
}

// Taken while draining too: the request was accepted when its blocks were reserved.
void EngineLoop::Handle(DecodeMessage& message) {
  if (absl::Status status = CheckNew(message.decode.request); !status.ok()) {
    return message.stream.Fail(status);
  }
  const ReservationId reservation = message.decode.reservation;
  const absl::Status status = receiver_.Claim(reservation, message.decode.request);
  if (!status.ok()) return message.stream.Fail(status);
  auto request = std::make_unique<RequestState>(std::move(message.decode.request));
  request->awaiting = reservation;
  request->hidden_bytes = receiver_.LandedBytes(reservation);
  request->first_tokens = std::move(message.decode.first_tokens);
  request->prefilled = true;
  request->stream = std::move(message.stream);
  request->accepted = message.accepted;
  RequestState& added = Add(std::move(request));
  if (!added.search && added.spec.so_far.empty()) {
    for (size_t i = 0; i < added.first_tokens.size(); ++i) {
      added.last_reason = StopReasonOf(added.spec, added.first_tokens[i].token_id, 1);
      added.ended[i] = added.last_reason != FinishReason::kNone;
    }
    if (added.AllEnded()) return End(added, {.reason = added.last_reason});
  }
  if (receiver_.IsComplete(reservation)) StartDecode(added, added.accepted);
}

void EngineLoop::Handle(CancelMessage& message) {
  const auto place = requests_.find(message.id);
  if (place != requests_.end()) End(*place->second, message.status);
}

void EngineLoop::Handle(EndChoiceMessage& message) {
  const auto place = requests_.find(message.id);
  if (place == requests_.end()) return;
  RequestState& request = *place->second;
  const bool known = message.index >= 0 && message.index < std::ssize(request.ended);
  if (!known || request.search || request.ended[message.index]) return;
  for (const SequenceId id : request.sequences) {
    Sequence& sequence = *Find(id);
    if (request.prefilled && !request.outgoing && sequence.index == message.index) {
      return EndChoice(sequence, FinishReason::kEnded);
    }
  }
  if (!request.awaiting) return;
  request.ended[message.index] = true;
  if (request.AllEnded()) End(request, {.reason = FinishReason::kEnded});
}

void EngineLoop::Handle(ShutdownMessage& message) {
  draining_ = true;
  shutdown_deadline_ = message.deadline;
  TurnAllAway();
}

void EngineLoop::Handle(TransportMessage& message) {
  transport_ = message.transport;
  sender_.Attach(message.transport);
}

void EngineLoop::Handle(KvCopiedMessage&) { PollStore(); }

void EngineLoop::PollStore() {
  for (const KvCompletion& completion : store_.Poll()) Handle(completion);
}

void EngineLoop::StartDecode(RequestState& request, TimePoint arrived) {
  const SequenceId id(next_sequence_++);
  request.sent_dtype = receiver_.NarrowerDType(*request.awaiting);
  BlockTable table = receiver_.Take(*request.awaiting, SpecOf(id, request.spec));
  request.awaiting.reset();
  request.stages.wait_kv = std::max(Duration{}, arrived - request.accepted);
  Sequence& root = AddSequence(request, id, store_.NewKey(request.spec.cache_salt));
  root.tables.push_back(std::move(table));
  store_.Insert(root.key, root.rows.front().tokens, request.prompt_tokens(), root.tables.front());
  if (!request.spec.so_far.empty()) return ResumeFrom(root);
  scheduler_.Activate(id);
  if (request.search) {
    AdvanceBeams(root, request.first_tokens);
  } else {
    ForkChoices(root, request.first_tokens);
  }
}

RequestState& EngineLoop::Add(std::unique_ptr<RequestState> request) {
  ++counts_.requests_accepted;
  const RequestId id = request->spec.id;
  return *requests_.emplace(id, std::move(request)).first->second;
}

Sequence& EngineLoop::AddSequence(RequestState& request, SequenceId id, PrefixKey key) {
  auto sequence = std::make_unique<Sequence>(id, request, std::move(key));
  sequence->seed = request.spec.sampling.seed;
  sequence->rows.push_back({.tokens = request.spec.prompt});
  sequence->key.Extend(request.spec.prompt);
  request.sequences.push_back(id);
  return *sequences_.emplace(id, std::move(sequence)).first->second;
}

Sequence* EngineLoop::Find(SequenceId id) {
  const auto place = sequences_.find(id);
  return place == sequences_.end() ? nullptr : place->second.get();
}

void EngineLoop::Drop(Sequence& sequence) {
  scheduler_.Finish(sequence.id);
  store_.Unexpect(sequence.id);
  if (sequence.swap) {
    swaps_.erase(*sequence.swap);
    store_.DropSwapped(*sequence.swap);
  }
  std::erase(sequence.request.sequences, sequence.id);
  sequences_.erase(sequence.id);
}

// All is given back and counted before the client hears of the end, so that what it asks for next
// finds it so.
void EngineLoop::End(RequestState& request, FinishInfo info) {
  if (request.outgoing) sender_.Abort(*request.outgoing);
  if (request.awaiting) receiver_.Release(*request.awaiting);
  while (!request.sequences.empty()) Drop(*Find(request.sequences.back()));
  ++counts_.requests_finished;
  info.stages = request.stages;
  info.cached_tokens = request.cached_tokens;
  info.kv.hidden_bytes = request.hidden_bytes;
  info.preemptions = request.preemptions;
  OutputStream stream = std::move(request.stream);
  requests_.erase(request.spec.id);
  Publish();
  stream.Finish(info);
}

// Of the slots in the sequences' blocks, those behind their last token.
double EngineLoop::Fragmentation() const {
  int64_t slots = 0;
  int64_t empty = 0;
  for (const auto& [id, sequence] : sequences_) {
    for (const BlockTable& table : sequence->tables) {
      slots += table.capacity_tokens();
      empty += std::max<int64_t>(0, table.capacity_tokens() - sequence->num_tokens());
    }
  }
  return slots == 0 ? 0 : static_cast<double>(empty) / static_cast<double>(slots);
}

void EngineLoop::Publish() {
  EngineStats stats = counts_;
  stats.starting = starting_;
  stats.scheduler = scheduler_.stats();
  stats.kv = store_.stats();
  const int32_t used = stats.kv.total_blocks - stats.kv.free_blocks - stats.kv.idle_blocks;
  counts_.most_used_blocks = std::max(counts_.most_used_blocks, used);
  stats.most_used_blocks = counts_.most_used_blocks;
  stats.fragmentation = Fragmentation();
  stats.reservations = receiver_.num_reservations();
  stats.waiting_reservations = waiting_.size();
  stats.draining_reservations = receiver_.num_draining();
  stats.handoffs = sender_.num_open();
  stats.handoff_counts.retried = sender_.num_reopened();
  if (transport_ != nullptr) {
    stats.kv_bytes_sent = transport_->bytes_sent();
    stats.kv_bytes_received = transport_->bytes_received();
  }
  publish_(stats);
}

void EngineLoop::CheckInvariants() const {
  const absl::Status scheduler = scheduler_.CheckInvariants();
  TANDEM_CHECK(scheduler.ok(), scheduler.ToString());
  const absl::Status store = store_.CheckInvariants();
  TANDEM_CHECK(store.ok(), store.ToString());
  const bool at_rest = requests_.empty() && receiver_.num_reservations() == 0;
  const KvStats stats = store_.stats();
  TANDEM_CHECK(!at_rest || (sequences_.empty() && swaps_.empty()),
               "a sequence outlived its request");
  TANDEM_CHECK(!at_rest || stats.pinned_blocks > 0 ||
                   stats.free_blocks + stats.idle_blocks == stats.total_blocks,
               "a block leaked");
}

}  // namespace tandem
