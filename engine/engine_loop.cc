#include "engine/engine_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

absl::Status ShuttingDown() { return Unavailable("this worker is shutting down: retry elsewhere"); }

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, Parts parts)
    : options_(options),
      clock_(parts.clock),
      inbox_(parts.inbox),
      store_(parts.store),
      runner_(parts.runner),
      publish_(std::move(parts.publish)),
      on_layer_stored_(options.role == Role::kPrefill ? LayerStored([this](int32_t layer) {
        sender_.PostLayer(layer, chunks_);
      })
                                                      : LayerStored()),
      scheduler_(options.scheduler),
      sender_(parts.store, parts.clock, parts.inbox),
      receiver_(options, scheduler_, parts.store, parts.zone, parts.clock) {
  Publish();
}

void EngineLoop::Run() {
  bool idle = true;
  while (!MayStop()) {
    HandleAll(idle ? inbox_.WaitAndDrain(WakeTime()) : inbox_.Drain());
    EndLapsedReservations(clock_.Now());
    idle = !Step();
    if (options_.check_invariants) CheckInvariants();
    Publish();
  }
  Stop();
}

TimePoint EngineLoop::WakeTime() const {
  return std::min({scheduler_.NextDeadline(), receiver_.NextLapse(), shutdown_deadline_});
}

bool EngineLoop::MayStop() const {
  return draining_ && (sequences_.empty() || clock_.Now() >= shutdown_deadline_);
}

void EngineLoop::Stop() {
  draining_ = true;
  inbox_.Close();
  HandleAll(inbox_.Drain());
  while (!sequences_.empty()) End(*sequences_.begin()->second, ShuttingDown());
  receiver_.ShutDown();
  if (options_.check_invariants) CheckInvariants();
  Publish();
}

void EngineLoop::HandleAll(std::vector<Message> messages) {
  for (Message& message : messages) {
    std::visit([this](auto& one) { Handle(one); }, message);
  }
}

absl::Status EngineLoop::CheckNew(const EngineRequest& request) const {
  if (!by_request_.contains(request.id)) return absl::OkStatus();
  return InvalidArgument("request id {} is in use: ids must be unique", request.id);
}

void EngineLoop::Handle(SubmitMessage& message) {
  if (draining_) return message.stream.Fail(ShuttingDown());
  if (absl::Status status = CheckNew(message.request); !status.ok()) {
    return message.stream.Fail(status);
  }
  auto sequence = std::make_unique<Sequence>(
      SequenceId(next_sequence_++), std::move(message.request), options_.layout.block_tokens);
  SequenceSpec spec = SpecOf(sequence->id, sequence->request);
  if (message.target) {
    sequence->outgoing = OutgoingKv{.target = *std::move(message.target)};
    spec.max_total_tokens = spec.prompt_tokens;  // it grows elsewhere
  }
  if (absl::Status status = scheduler_.Enqueue(spec); !status.ok()) {
    return message.stream.Fail(status);
  }
  sequence->stream = std::move(message.stream);
  sequence->accepted = message.accepted;
  Add(std::move(sequence));
}

void EngineLoop::Handle(ReserveMessage& message) {
  if (draining_) return message.done(ShuttingDown());
  message.done(receiver_.Reserve(message.request, SequenceId(next_sequence_++)));
}

// Taken while draining too: the request was accepted when its blocks were reserved.
void EngineLoop::Handle(DecodeMessage& message) {
  if (absl::Status status = CheckNew(message.decode.request); !status.ok()) {
    return message.stream.Fail(status);
  }
  const ReservationId reservation = message.decode.reservation;
  auto sequence =
      std::make_unique<Sequence>(SequenceId(next_sequence_++), std::move(message.decode.request),
                                 options_.layout.block_tokens);
  absl::Status status = receiver_.Claim(reservation, sequence->id, sequence->request);
  if (!status.ok()) return message.stream.Fail(status);
  sequence->awaiting = reservation;
  sequence->output.push_back(message.decode.first_token);
  sequence->stream = std::move(message.stream);
  sequence->accepted = message.accepted;
  Sequence& added = Add(std::move(sequence));
  if (const FinishReason reason = added.StopReason(); reason != FinishReason::kNone) {
    return End(added, {.reason = reason});
  }
  if (receiver_.IsComplete(reservation)) StartDecode(added, added.accepted);
}

void EngineLoop::Handle(CancelMessage& message) {
  const auto place = by_request_.find(message.id);
  if (place != by_request_.end()) End(*Find(place->second), message.status);
}

void EngineLoop::Handle(ReleaseMessage& message) {
  if (const std::optional<SequenceId> claim = receiver_.ClaimedBy(message.reservation)) {
    return End(*Find(*claim), Cancelled("its reservation was released"));
  }
  receiver_.Release(message.reservation);
}

void EngineLoop::Handle(ShutdownMessage& message) {
  draining_ = true;
  shutdown_deadline_ = message.deadline;
}

void EngineLoop::Handle(TransportMessage& message) {
  transport_ = message.transport;
  sender_.Attach(message.transport);
}

void EngineLoop::Handle(StreamEndedMessage& message) {
  Sequence* const sequence = Find(message.sequence);
  if (sequence == nullptr) return;
  const absl::Status status = sender_.Ended(*sequence, message);
  if (!status.ok()) return End(*sequence, status);
  End(*sequence, {.reason = FinishReason::kHandedOff, .kv = sender_.Report(*sequence, message.at)});
}

void EngineLoop::Handle(KvArrivedMessage& message) {
  receiver_.Arrived(message);
  const std::optional<SequenceId> claim = receiver_.ClaimedBy(message.reservation);
  if (!claim) return;
  Sequence& sequence = *Find(*claim);
  if (!message.status.ok()) return End(sequence, Annotate(message.status, "KV of the prompt"));
  StartDecode(sequence, message.at);
}

void EngineLoop::Handle(KvDrainedMessage& message) { receiver_.Drained(message.reservation); }

void EngineLoop::StartDecode(Sequence& sequence, TimePoint arrived) {
  sequence.table = receiver_.Take(*sequence.awaiting, SpecOf(sequence.id, sequence.request));
  sequence.awaiting.reset();
  sequence.stages.wait_kv = std::max(Duration{}, arrived - sequence.accepted);
  scheduler_.Activate(sequence.id);
}

void EngineLoop::EndLapsedReservations(TimePoint now) {
  for (const Lapse& lapse : receiver_.Lapsed(now)) {
    spdlog::warn("reservation={} lapsed: {}", lapse.reservation, lapse.status.ToString());
    if (lapse.claimed_by) {
      End(*Find(*lapse.claimed_by), lapse.status);
    } else {
      receiver_.Release(lapse.reservation);
    }
  }
}

Sequence& EngineLoop::Add(std::unique_ptr<Sequence> sequence) {
  ++counts_.requests_accepted;
  by_request_.emplace(sequence->request.id, sequence->id);
  return *sequences_.emplace(sequence->id, std::move(sequence)).first->second;
}

Sequence* EngineLoop::Find(SequenceId id) {
  const auto place = sequences_.find(id);
  return place == sequences_.end() ? nullptr : place->second.get();
}

// All is given back and counted before the client hears of the end, so that what it asks for next
// finds it so.
void EngineLoop::End(Sequence& sequence, FinishInfo info) {
  if (sequence.outgoing) sender_.Abort(sequence);
  if (sequence.awaiting) receiver_.Release(*sequence.awaiting);
  scheduler_.Finish(sequence.id);
  by_request_.erase(sequence.request.id);
  ++counts_.requests_finished;
  info.stages = sequence.stages;
  OutputStream stream = std::move(sequence.stream);
  sequences_.erase(sequence.id);
  Publish();
  stream.Finish(info);
}

void EngineLoop::Publish() {
  EngineStats stats = counts_;
  stats.scheduler = scheduler_.stats();
  stats.total_blocks = store_.pool().num_blocks();
  stats.free_blocks = store_.pool().num_free();
  stats.reservations = receiver_.num_reservations();
  stats.handoffs = sender_.num_open();
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
  TANDEM_CHECK(store_.pool().num_used() <= scheduler_.stats().promised_blocks,
               "more blocks are used than were promised");
  const bool at_rest = sequences_.empty() && receiver_.num_reservations() == 0;
  TANDEM_CHECK(!at_rest || store_.pool().num_used() == 0, "a block leaked");
}

}  // namespace tandem
