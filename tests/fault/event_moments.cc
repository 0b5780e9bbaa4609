// How each fault that is not at a frame is brought about at its moment (those at frames:
// frame_moments.cc).

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/fault/event_runner.h"
#include "tests/fault/fault_targets.h"
#include "tests/fault/running_event.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// Workers are held meanwhile, and must not be missed for that.
constexpr milliseconds kSeenWithin(700);
// Of two small pools each has room for one long request: two wait.
constexpr int kFillers = 4;
constexpr int32_t kFillersThatWait = 2;

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

bool EventRunner::AwaitAccepted() const {
  const uint64_t sent = sent_;
  return AwaitStatus(
      [sent](const v1::GetStatusResponse& status) { return status.requests_total() >= sent; });
}

bool EventRunner::AwaitStatus(const StatusWatch::Condition& condition) const {
  return fleet_.status().Await(condition, kSeenWithin) != kNoDeadline;
}

}  // namespace tandem
