// How each fault is brought about at its moment.

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "tests/fault/event_runner.h"
#include "tests/fault/running_event.h"
#include "tests/fault/socket_owner.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Workers are held meanwhile, and must not be missed for that.
constexpr milliseconds kSeenWithin(700);
// The pause before a stream is opened again for the third time is 200 ms
// (engine/handoff/sender.cc): a deadline falls into its middle.
constexpr uint32_t kCutsBeforeThePause = 2;
constexpr milliseconds kWithinThePause(100);
// Of two small pools each has room for one long request: two wait.
constexpr int kFillers = 4;
constexpr int32_t kFillersThatWait = 2;
constexpr int32_t kLayers = 6;
constexpr int32_t kBlockTokens = 16;

bool IsFrameMoment(Moment moment) {
  switch (moment) {
    case Moment::kAccepted:
    case Moment::kWaiting:
    case Moment::kQueued:
    case Moment::kMoving:
    case Moment::kDecoding:
    case Moment::kIdle:
      return false;
    default:
      return true;
  }
}

FrameType TypeAt(Moment moment) {
  switch (moment) {
    case Moment::kCommit:
      return FrameType::kCommit;
    case Moment::kAck:
    case Moment::kAcknowledged:
      return FrameType::kAck;
    case Moment::kRenew:
      return FrameType::kRenew;
    case Moment::kCredit:
      return FrameType::kCredit;
    case Moment::kResend:
      return FrameType::kResend;
    default:
      return FrameType::kData;
  }
}

FrameAction::Kind ActionOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kCutBefore:
      return FrameAction::Kind::kCutBefore;
    case FaultKind::kCutInside:
      return FrameAction::Kind::kCutInside;
    case FaultKind::kCutAfter:
      return FrameAction::Kind::kCutAfter;
    case FaultKind::kHold:
      return FrameAction::Kind::kHold;
    case FaultKind::kFlipHeader:
      return FrameAction::Kind::kFlipHeader;
    case FaultKind::kFlipPayload:
      return FrameAction::Kind::kFlipPayload;
    case FaultKind::kDrop:
      return FrameAction::Kind::kDrop;
    case FaultKind::kDuplicate:
      return FrameAction::Kind::kDuplicate;
    case FaultKind::kReorder:
      return FrameAction::Kind::kSwap;
    default:
      return FrameAction::Kind::kPass;
  }
}

// What is at a worker.
int64_t BusyWith(const v1::WorkerStatus& worker) {
  const v1::HandoffUse& handoffs = worker.load().handoffs();
  return worker.load().running() + worker.load().waiting() + handoffs.sending() +
         handoffs.reservations() + handoffs.waiting_reservations();
}

// What grows by one when a worker is given a request, and does not fall when it has done its part.
int64_t Given(const v1::WorkerStatus& worker, const FaultRow& row) {
  const v1::HandoffUse& handoffs = worker.load().handoffs();
  if (row.moment == Moment::kWaiting) return handoffs.waiting_reservations();
  switch (row.target) {
    case FaultTarget::kPrefill:
      return static_cast<int64_t>(handoffs.sent()) + handoffs.sending();
    case FaultTarget::kDecode:
      return static_cast<int64_t>(handoffs.received()) + handoffs.reservations();
    default:
      return static_cast<int64_t>(worker.load().requests_finished()) + worker.load().running() +
             worker.load().waiting();
  }
}

// By how much that grew at a worker; nothing of one that is not in both.
int64_t Grown(const v1::GetStatusResponse& before, const v1::GetStatusResponse& now,
              const std::string& name, const FaultRow& row) {
  const v1::WorkerStatus* was = FindWorker(before, name);
  const v1::WorkerStatus* is = FindWorker(now, name);
  return was == nullptr || is == nullptr ? 0 : Given(*is, row) - Given(*was, row);
}

// Requests that wait for room at any decode worker.
int32_t Waiting(const v1::GetStatusResponse& status) {
  int32_t waiting = 0;
  for (const auto& worker : status.workers())
    waiting += worker.load().handoffs().waiting_reservations();
  return waiting;
}

// SIGSTOP to all of a role while this lives.
class RoleHold {
 public:
  explicit RoleHold(const std::vector<FleetMember*>& members) {
    for (FleetMember* member : members) {
      if (const pid_t process = member->Hold(); process != 0) held_.push_back({member, process});
    }
  }
  ~RoleHold() {
    for (const Held& held : held_) held.member->Unhold(held.process);
  }
  RoleHold(const RoleHold&) = delete;
  RoleHold& operator=(const RoleHold&) = delete;
  bool holds() const { return !held_.empty(); }

 private:
  struct Held {
    FleetMember* member;
    pid_t process;
  };
  std::vector<Held> held_;
};

}  // namespace

bool EventRunner::BringAbout(Running& running) {
  const FaultRow& row = running.event.row;
  switch (row.moment) {
    case Moment::kAccepted:
      return RunWhileHeld(running, row.target == FaultTarget::kUnified ? FaultTarget::kUnified
                                                                       : FaultTarget::kDecode);
    case Moment::kQueued:
      return RunWhileHeld(running, FaultTarget::kPrefill);
    case Moment::kWaiting:
      return RunWhileWaiting(running);
    case Moment::kMoving:
      return RunWhileMoving(running);
    case Moment::kLost:
      return RunWhileLost(running);
    case Moment::kDraining:
      return RunWhileDraining(running);
    case Moment::kDecoding:
      return RunWhileDecoding(running);
    case Moment::kIdle:
      return RunWhileIdle(running);
    default:
      return RunOnFrame(running);
  }
}

// Sends it and lets it alone once its stream was seen. `before` is called when its turn has come,
// `meanwhile` once it was sent.
void EventRunner::Submit(Running& running, const std::function<void()>& before,
                         const std::function<void()>& meanwhile) {
  absl::MutexLock turn(&turn_);
  if (before) before();
  Send(running);
  if (meanwhile) meanwhile();
  AwaitClaimed(running);
}

void EventRunner::Send(Running& running) {
  running.ticket = desk_.Set(TriggerOf(running));
  running.sent = std::chrono::steady_clock::now();
  running.before = fleet_.status().latest();
  running.call = std::make_unique<GenerateCall>(*stub_, running.request, running.timeout,
                                                [this] { desk_.Nudge(); });
  running.to_cancel = running.call.get();
  ++sent_;
}

void EventRunner::AwaitClaimed(const Running& running) const {
  const GenerateCall& call = *running.call;
  desk_.AwaitClaimed(running.ticket, [&call] { return call.tokens() > 0 || call.ended(); });
}

FrameTrigger EventRunner::TriggerOf(Running& running) {
  const FaultRow& row = running.event.row;
  FrameTrigger trigger{.type = TypeAt(row.moment)};
  if (!IsFrameMoment(row.moment)) {
    trigger.nth = std::numeric_limits<uint32_t>::max();  // only tells streams apart
    return trigger;
  }
  if (row.moment == Moment::kStreamOpen) trigger.any_type = true;
  if (row.moment == Moment::kStreamOpen && row.target == FaultTarget::kFrame) {
    // The renewal with which a stream opens, or its first data.
    trigger.any_type = !running.is(FaultKind::kFlipPayload) && running.Draw(0, 1) == 0;
  }
  if (row.moment == Moment::kDataFrame) {
    const int32_t blocks =
        (running.request.token_ids().ids_size() + kBlockTokens - 1) / kBlockTokens;
    const auto frames = static_cast<uint64_t>(kLayers * blocks);
    const uint64_t most = running.Draw(0, 2) == 0 ? frames : uint64_t{kLayers};
    trigger.nth = static_cast<uint32_t>(running.Draw(2, most));
  }
  if (row.moment == Moment::kDraining) {
    trigger.nth = static_cast<uint32_t>(running.Draw(1, kLayers));
  }
  if (row.moment == Moment::kLost) {
    // While it is streaming, or committed.
    trigger.any_type = running.Draw(0, 1) == 0;
    if (!trigger.any_type) trigger.type = FrameType::kCommit;
    trigger.cuts_before = kCutsBeforeThePause;
  }
  if (row.moment == Moment::kCredit) trigger.whose = FrameTrigger::Whose::kAny;
  if (row.moment == Moment::kResend) trigger.lose = FrameTrigger::Lose::kData;
  if (row.moment == Moment::kRenew) trigger.lose = FrameTrigger::Lose::kCommit;
  trigger.act = [this, &running](const ObservedFrame& frame, size_t proxy) {
    return Act(running, frame, proxy);
  };
  return trigger;
}

// On the proxy's thread.
FrameAction EventRunner::Act(Running& running, const ObservedFrame& frame, size_t proxy) {
  const FaultRow& row = running.event.row;
  running.proxy = proxy;
  running.connection = frame.connection;
  running.member = Choose(running, proxy, frame.sender_port);
  running.did = true;
  if (row.moment == Moment::kDraining) return {.kind = FrameAction::Kind::kHoldInside};
  if (row.kind == FaultKind::kDeadline) return {.kind = FrameAction::Kind::kHold};
  if (row.moment == Moment::kLost) return {.kind = FrameAction::Kind::kCutBefore};
  if (row.target == FaultTarget::kFrame) return ActOnFrame(running);
  running.did = ActAfterFrame(running);
  // Its answer never comes.
  const bool to_process = row.kind != FaultKind::kCancel;
  if (row.moment == Moment::kAck && to_process) return {.kind = FrameAction::Kind::kDrop};
  return {};
}

FrameAction EventRunner::ActOnFrame(const Running& running) const {
  return {.kind = ActionOf(running.event.row.kind),
          .bits = 1 + static_cast<uint32_t>(running.event.seed % 8),
          .seed = running.event.seed};
}

bool EventRunner::ActAfterFrame(Running& running) {
  GenerateCall* const call = running.to_cancel;
  if (running.event.row.target != FaultTarget::kClient) {
    return running.member != nullptr &&
           running.member->Disturb(running.event.row.kind, running.pause);
  }
  if (call != nullptr) call->Cancel();
  return call != nullptr;
}

bool EventRunner::RunOnFrame(Running& running) {
  Submit(running);
  if (!desk_.AwaitFired(running.ticket, [&running] { return running.ended(); })) return false;
  if (running.is(FaultKind::kHold)) {
    std::this_thread::sleep_for(running.pause);  // the fault itself
    desk_.Release();
  } else if (running.is(FaultKind::kDeadline)) {
    running.call->AwaitEnd();
    desk_.Release();
  }
  desk_.Take(running.ticket);
  return running.did;
}

bool EventRunner::RunWhileHeld(Running& running, FaultTarget held) {
  bool came_about = false;
  std::unique_ptr<RoleHold> hold;  // not while others wait for the answers of those workers
  const auto before = [&] { hold = std::make_unique<RoleHold>(fleet_.members(held)); };
  const auto is_reserved = [&](const v1::GetStatusResponse& status) {
    const FaultRow at_decode = {.target = FaultTarget::kDecode, .moment = Moment::kQueued};
    return std::ranges::any_of(fleet_.members(FaultTarget::kDecode), [&](const auto* member) {
      return Grown(*running.before, status, member->name(), at_decode) > 0;
    });
  };
  Submit(running, before, [&] {
    came_about = hold->holds() && AwaitAccepted() &&
                 (!running.is(Moment::kQueued) || AwaitStatus(is_reserved));
    if (came_about) came_about = ActOnCall(running);
    if (running.is(FaultKind::kDeadline)) running.call->AwaitEnd();
    hold.reset();
  });
  return came_about;
}

// Those that were there before it have all the room, and one of them waits already. The prefill
// workers are held meanwhile, so that nobody gets on and gives room back.
bool EventRunner::RunWhileWaiting(Running& running) {
  if (running.is(FaultKind::kDeadline)) running.timeout = kSeenWithin;
  bool came_about = false;
  int32_t waiting = 0;
  std::vector<std::unique_ptr<Running>> fillers;
  std::unique_ptr<RoleHold> hold;
  const auto before = [&] {
    hold = std::make_unique<RoleHold>(fleet_.members(FaultTarget::kPrefill));
    fillers = FillPools(running);
    waiting = Waiting(*fleet_.status().latest());
  };
  Submit(running, before, [&] {
    came_about = waiting > 0 && AwaitAccepted() &&
                 AwaitStatus([waiting](const auto& status) { return Waiting(status) > waiting; });
    if (came_about) came_about = ActOnCall(running);
    if (running.is(FaultKind::kDeadline)) running.call->AwaitEnd();
    hold.reset();
    for (const auto& filler : fillers) AwaitClaimed(*filler);
  });
  running.call->AwaitEnd();
  for (const auto& filler : fillers) {
    filler->call->AwaitEnd();
    desk_.Take(filler->ticket);
    Check(*filler);
  }
  return came_about;
}

std::vector<std::unique_ptr<EventRunner::Running>> EventRunner::FillPools(const Running& running) {
  std::vector<std::unique_ptr<Running>> fillers;
  for (int i = 0; i < kFillers; ++i) {
    fillers.emplace_back(new Running(MakeRunning(running.event)));
    Running& filler = *fillers.back();
    filler.part = Running::Part::kCompanion;
    filler.request.set_route(v1::ROUTE_DISAGGREGATED);
    filler.request.set_cache_salt(fmt::format("{}-filler-{}", running.request.cache_salt(), i));
    Send(filler);
  }
  const uint64_t sent = sent_;
  AwaitStatus([sent](const v1::GetStatusResponse& status) {
    return status.requests_total() >= sent && Waiting(status) >= kFillersThatWait;
  });
  return fillers;
}

// The prefill worker has told the first token of each choice, and the decode worker none: it has
// not all KV.
bool EventRunner::RunWhileMoving(Running& running) {
  Submit(running);
  const auto first_tokens = static_cast<size_t>(running.request.n());
  if (!running.call->AwaitTokens(first_tokens)) return false;
  if (running.is(FaultKind::kDeadline)) running.call->AwaitEnd();
  const bool moves = running.call->tokens() == first_tokens;
  return moves && (running.is(FaultKind::kDeadline) || ActOnCall(running));
}

// The sender knows that the connection is lost when it closes its own end, and opens another after
// its pause: until then no frame of the stream comes.
bool EventRunner::RunWhileLost(Running& running) {
  Submit(running);
  if (!desk_.AwaitFired(running.ticket, [&running] { return running.ended(); })) return false;
  FrameProxy& proxy = desk_.proxy(running.proxy);
  if (running.is(FaultKind::kDeadline)) {
    std::this_thread::sleep_until(running.sent + running.timeout - kWithinThePause);
    proxy.CutConnections();
  }
  if (!proxy.AwaitClosedBySender(running.connection) || running.ended()) return false;
  bool acted = true;
  if (running.is(FaultKind::kDeadline)) {
    running.call->AwaitEnd();
  } else {
    acted = ActAfterFrame(running);
  }
  return acted && desk_.IsQuietSince(running.ticket);
}

// Half a frame has come when the request ends: its blocks are kept until the other half comes too,
// or the connection is lost.
bool EventRunner::RunWhileDraining(Running& running) {
  Submit(running);
  if (!desk_.AwaitFired(running.ticket, [&running] { return running.ended(); })) return false;
  if (!running.is(FaultKind::kDeadline)) running.call->Cancel();
  running.call->AwaitEnd();
  const std::string receiver = fleet_.members(FaultTarget::kDecode)[running.proxy]->name();
  const bool drains = AwaitStatus([&receiver](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* worker = FindWorker(status, receiver);
    return worker != nullptr && worker->load().handoffs().draining_reservations() > 0;
  });
  bool acted = drains;
  if (drains && running.is(FaultKind::kCutInside)) desk_.proxy(running.proxy).CutConnections();
  if (drains && running.event.row.target != FaultTarget::kFrame) acted = ActAfterFrame(running);
  desk_.Release();
  return acted;
}

bool EventRunner::RunWhileDecoding(Running& running) {
  const size_t tokens = running.Draw(1, 8);
  Submit(running);
  if (!running.call->AwaitTokens(tokens)) return false;
  if (!running.is(FaultKind::kDeadline)) return ActOnCall(running);
  const RoleHold decode(fleet_.members(FaultTarget::kDecode));
  const RoleHold unified(fleet_.members(FaultTarget::kUnified));
  running.call->AwaitEnd();
  return true;
}

// The request comes when it is done already, and must not be lost at such a worker.
bool EventRunner::RunWhileIdle(Running& running) {
  FleetMember* const member = ChooseIdle(running);
  const bool acted = member != nullptr && member->Disturb(running.event.row.kind, running.pause);
  Submit(running);
  return acted;
}

// A cancel, or a signal; an expiry is waited for by who calls this.
bool EventRunner::ActOnCall(Running& running) {
  if (running.call->ended()) return false;
  if (running.is(FaultKind::kDeadline)) return true;
  if (running.is(FaultKind::kCancel)) {
    running.call->Cancel();
    return true;
  }
  FleetMember* const member = Choose(running);
  running.guessed = member;
  return member != nullptr && member->Disturb(running.event.row.kind, running.pause);
}

FleetMember* EventRunner::Choose(const Running& running, size_t proxy, uint16_t sender_port) const {
  const std::vector<FleetMember*> members = fleet_.members(running.event.row.target);
  if (running.event.row.target == FaultTarget::kDecode) return members[proxy];
  for (FleetMember* member : members) {
    if (OwnsSocket(member->pid(), sender_port)) return member;
  }
  return nullptr;
}

FleetMember* EventRunner::ChooseIdle(const Running& running) const {
  const auto status = fleet_.status().latest();
  for (FleetMember* member : fleet_.members(running.event.row.target)) {
    const v1::WorkerStatus* worker = FindWorker(*status, member->name());
    if (worker != nullptr && BusyWith(*worker) == 0) return member;
  }
  return nullptr;
}

// A frame of it tells; else a worker that was given something since it was sent; else, while those
// that were given it do not report, the one that had the least to do: the router's rule.
FleetMember* EventRunner::Choose(const Running& running) const {
  const FaultRow& row = running.event.row;
  const auto way = desk_.WayOf(running.ticket);
  if (way && row.target != FaultTarget::kUnified) {
    return Choose(running, way->proxy, way->sender_port);
  }
  const auto status = fleet_.status().latest();
  const std::vector<FleetMember*> members = fleet_.members(row.target);
  const auto grown = [&](const FleetMember* member) {
    return Grown(*running.before, *status, member->name(), row);
  };
  FleetMember* const most = *std::ranges::max_element(members, {}, grown);
  if (grown(most) > 0) return most;
  if (row.moment == Moment::kWaiting) return nullptr;
  return *std::ranges::min_element(members, {}, [&](const FleetMember* member) {
    const v1::WorkerStatus* worker = FindWorker(*running.before, member->name());
    return worker == nullptr ? std::numeric_limits<int64_t>::max() : BusyWith(*worker);
  });
}

bool EventRunner::AwaitAccepted() const {
  const uint64_t sent = sent_;
  return AwaitStatus(
      [sent](const v1::GetStatusResponse& status) { return status.requests_total() >= sent; });
}

bool EventRunner::AwaitStatus(const StatusWatch::Condition& condition) const {
  return fleet_.status().Await(condition, kSeenWithin) != kNoDeadline;
}

}  // namespace tandem
