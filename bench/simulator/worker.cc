#include "bench/simulator/worker.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "engine/sequence.h"

namespace tandem::simulator {

SimulatedWorker::SimulatedWorker(WorkerConfig config, const WorkerLimits& limits,
                                 Timeline& timeline, Digest& digest,
                                 SimulatedSender::Deliver deliver)
    : core_(std::move(config), limits, timeline, digest),
      reservations_(
          limits, {.timeline = timeline,
                   .scheduler = core_.scheduler,
                   .store = core_.store,
                   .new_id = [this] { return core_.NewId(); },
                   .start_decode = [this](SimulatedSequence& sequence,
                                          TimePoint arrived) { StartDecode(sequence, arrived); }}),
      steps_({.core = core_,
              .hand_off = [this](SimulatedSequence& sequence) { sender_->Send(sequence); },
              .step_ended = [this] { Turn(); }}) {
  core_.ended = [this](SequenceId id) { reservations_.Forget(id); };
  if (core_.config.role == v1::WORKER_ROLE_PREFILL) {
    sender_.emplace(SimulatedSender::Parts{.core = core_,
                                           .deliver = std::move(deliver),
                                           .post = [this](auto task) { Post(std::move(task)); }},
                    *core_.config.model->link);
  }
  Publish();
}

void SimulatedWorker::Post(std::function<void()> message) {
  if (core_.dead) return;
  inbox_.push_back(std::move(message));
  if (!steps_.running()) Turn();
}

// The order is that of EngineLoop::Run, which begins here in its middle: what a step sampled is
// delivered. What is published does not change while a step runs.
void SimulatedWorker::Turn() {
  if (core_.dead || std::exchange(turning_, true)) return;
  bool changed = true;
  while (!steps_.running() && (changed || !inbox_.empty())) {
    reservations_.AdmitWaiting();
    Publish();
    const std::vector<std::function<void()>> messages = std::exchange(inbox_, {});
    for (const std::function<void()>& message : messages) message();
    reservations_.ActOnTime();
    changed = steps_.Begin() || !messages.empty();
  }
  turning_ = false;
  if (!steps_.running()) WakeLater();
}

// An idle worker wakes when a deadline passes.
void SimulatedWorker::WakeLater() {
  const TimePoint next = std::min(core_.scheduler.NextDeadline(), reservations_.NextExpiry());
  if (next >= wakes_at_ || next == kNoDeadline) return;
  wakes_at_ = std::max(next, core_.timeline.Now());
  core_.timeline.At(wakes_at_, [this] {
    wakes_at_ = kNoDeadline;
    if (!steps_.running()) Turn();
  });
}

void SimulatedWorker::Submit(EngineRequest request, std::optional<HandoffTarget> target,
                             OutputStream stream) {
  auto message = std::make_shared<std::pair<EngineRequest, OutputStream>>(std::move(request),
                                                                          std::move(stream));
  Post([this, message, accepted = core_.timeline.Now(), target = std::move(target)] {
    OnSubmit(message->first, target, accepted, message->second);
  });
}

void SimulatedWorker::OnSubmit(EngineRequest& request, const std::optional<HandoffTarget>& target,
                               TimePoint accepted, OutputStream& stream) {
  if (core_.Find(request.id) != nullptr) {
    return stream.Fail(InvalidArgument("request id {} is in use: ids must be unique", request.id));
  }
  std::unique_ptr<SimulatedSequence> sequence = core_.NewSequence(request, std::move(stream));
  sequence->accepted = accepted;
  SequenceSpec spec = SpecOf(sequence->id, request);
  if (target) {
    sequence->target = target;
    spec.max_total_tokens = spec.prompt_tokens;  // its output grows elsewhere
  } else if (!request.so_far.empty()) {
    sequence->prefilled = true;
    sequence->emitted = static_cast<int32_t>(request.so_far.front().token_ids.size());
    spec.emitted_tokens = sequence->emitted;
  }
  const absl::Status queued = core_.scheduler.Enqueue(spec, core_.timeline.Now());
  if (!queued.ok()) return sequence->stream.Fail(queued);
  core_.AddSequence(std::move(sequence));
}

ReserveTicket SimulatedWorker::Reserve(ReserveRequest request, SimulatedReservations::Done done) {
  const ReserveTicket ticket(next_ticket_++);
  const TimePoint asked = core_.timeline.Now();
  auto message = std::make_shared<ReserveRequest>(std::move(request));
  Post([this, ticket, asked, message, done = std::move(done)] {
    PrefixKey key = core_.KeyOf(message->prompt);
    reservations_.Reserve(ticket, std::move(*message), std::move(key), asked, done);
  });
  return ticket;
}

void SimulatedWorker::CancelReserve(ReserveTicket ticket) {
  Post([this, ticket] { reservations_.Cancel(ticket); });
}

void SimulatedWorker::Decode(DecodeRequest decode, OutputStream stream) {
  auto message = std::make_shared<std::pair<DecodeRequest, OutputStream>>(std::move(decode),
                                                                          std::move(stream));
  Post([this, message, accepted = core_.timeline.Now()] {
    OnDecode(message->first, accepted, message->second);
  });
}

void SimulatedWorker::OnDecode(DecodeRequest& decode, TimePoint accepted, OutputStream& stream) {
  const absl::StatusOr<SimulatedSequence*> claimed = reservations_.Claim(decode.reservation);
  if (!claimed.ok()) return stream.Fail(claimed.status());
  const EngineRequest& request = decode.request;
  SimulatedSequence& sequence = **claimed;
  sequence.request = request.id;
  sequence.stream = std::move(stream);
  sequence.accepted = accepted;
  sequence.deadline = request.deadline;
  sequence.emitted = 1;  // by the prefill worker
  if (!request.so_far.empty()) {
    sequence.emitted = static_cast<int32_t>(request.so_far.front().token_ids.size());
    sequence.resumes = true;
  }
  core_.requests.emplace(request.id, sequence.id);
  reservations_.Ready(decode.reservation);
}

// The scheduler learns the deadline only now: until the KV has arrived the reservation must stand.
void SimulatedWorker::StartDecode(SimulatedSequence& sequence, TimePoint arrived) {
  sequence.stages.wait_kv = std::max(Duration{}, arrived - sequence.accepted);
  const SequenceId id = core_.NewId();
  core_.scheduler.TransferTo(sequence.id,
                             {.id = id,
                              .prompt_tokens = sequence.prompt_tokens,
                              .max_total_tokens = sequence.prompt_tokens + sequence.max_tokens - 1,
                              .deadline = sequence.deadline});
  core_.store.Rename(sequence, id);
  core_.requests[sequence.request] = id;
  core_.store.Computed(sequence, sequence.prompt_tokens, false);
  if (!sequence.resumes) return core_.scheduler.Activate(id);
  const Scheduler::Resumed resumed = {
      .id = id, .computed_tokens = sequence.prompt_tokens, .emitted_tokens = sequence.emitted};
  core_.scheduler.Resume(id, {&resumed, 1});
}

void SimulatedWorker::Cancel(RequestId id, absl::Status status) {
  Post([this, id, status = std::move(status)] {
    if (SimulatedSequence* const sequence = core_.Find(id)) {
      core_.End(*sequence, {.status = status});
    }
  });
}

void SimulatedWorker::Release(ReservationId id) {
  Post([this, id] {
    const std::optional<SequenceId> claimed = reservations_.Release(id);
    if (!claimed) return;
    core_.End(core_.store.Get(*claimed), {.status = Cancelled("its reservation was released")});
  });
}

void SimulatedWorker::ReleaseOf(RequestId id) {
  Post([this, id] { reservations_.ReleaseOf(id); });
}

void SimulatedWorker::KvArrived(ReservationId id) {
  Post([this, id] { reservations_.Arrived(id); });
}

void SimulatedWorker::Publish() {
  EngineStats& stats = core_.counts;
  reservations_.AddTo(stats);
  stats.starting = false;
  stats.scheduler = core_.scheduler.stats();
  stats.costs = core_.costs.state();
  stats.kv = core_.store.kv().stats();
  stats.steps = core_.usage.steps;
  stats.prompt_tokens = core_.usage.prompt_tokens;
  stats.output_tokens = core_.usage.output_tokens;
  stats.handoffs = sender_ ? sender_->streams() : 0;
  WorkerUsage& usage = core_.usage;
  const SchedulerStats& now = stats.scheduler;
  usage.peak_waiting = std::max(usage.peak_waiting, now.waiting + now.prefilling);
  usage.peak_running = std::max(usage.peak_running, now.running);
  const KvStats& kv = stats.kv;
  usage.peak_blocks =
      std::max(usage.peak_blocks, kv.total_blocks - kv.free_blocks - kv.idle_blocks);
  usage.peak_waiting_reservations =
      std::max(usage.peak_waiting_reservations, stats.waiting_reservations);
  published_ = stats;
}

}  // namespace tandem::simulator
