#include "tests/fault/event_runner.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "fmt/format.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/fault/socket_owner.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// No request needs that long, whatever happens to it.
constexpr seconds kTimeout(60);
// Of those that shall expire.
constexpr milliseconds kShortTimeout(1500);
// A call ends with its deadline, and what the system needs to say so.
constexpr seconds kGrace(2);
// Workers are held meanwhile, and must not be missed for that.
constexpr milliseconds kAcceptedWithin(700);
constexpr int32_t kLayers = 6;
constexpr int32_t kBlockTokens = 16;

bool IsFrameMoment(Moment moment) {
  return moment != Moment::kAccepted && moment != Moment::kQueued && moment != Moment::kDecoding;
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

// The whole of `told`, or a beginning of it.
bool IsPrefix(const std::vector<int32_t>& part, const std::vector<int32_t>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// SIGSTOP to all of a role while this lives.
class RoleHold {
 public:
  explicit RoleHold(const std::vector<FleetMember*>& members) {
    for (FleetMember* member : members) {
      if (member->Hold()) held_.push_back(member);
    }
  }
  ~RoleHold() {
    for (FleetMember* member : held_) member->Unhold();
  }
  RoleHold(const RoleHold&) = delete;
  RoleHold& operator=(const RoleHold&) = delete;
  bool holds() const { return !held_.empty(); }

 private:
  std::vector<FleetMember*> held_;
};

}  // namespace

// One request under way. Its address is known to the desk while its ticket is there.
struct EventRunner::Running {
  const FaultEvent& event;
  const FaultCase& expected;
  std::mt19937_64 random;
  v1::GenerateRequest request;
  Duration timeout{};
  Duration pause{};
  FrameDesk::Ticket ticket = 0;
  std::unique_ptr<GenerateCall> call;
  std::atomic<GenerateCall*> to_cancel = nullptr;
  std::atomic<bool> did = false;

  uint64_t Draw(uint64_t least, uint64_t most) { return least + random() % (most - least + 1); }
  bool is(FaultKind kind) const { return event.row.kind == kind; }
  bool ended() const { return to_cancel != nullptr && to_cancel.load()->ended(); }
};

EventRunner::EventRunner(Fleet& fleet, FrameDesk& desk, const std::vector<FaultCase>& cases,
                         Findings& findings)
    : fleet_(fleet),
      desk_(desk),
      cases_(cases),
      findings_(findings),
      stub_(v1::Inference::NewStub(
          grpc::CreateChannel(fleet.router(), grpc::InsecureChannelCredentials()))) {}

void EventRunner::Settle() {
  desk_.Release();
  sent_ = fleet_.status().latest()->requests_total();
}

bool EventRunner::Run(const FaultEvent& event) {
  const FaultRow& row = event.row;
  const FaultCase& expected = cases_[event.request];
  Running running{.event = event,
                  .expected = expected,
                  .random = std::mt19937_64(event.seed),
                  .request = expected.request};
  running.timeout = running.is(FaultKind::kDeadline) ? Duration(kShortTimeout) : Duration(kTimeout);
  running.pause = milliseconds(running.Draw(kShortPause.count(), kLongestPause.count()));
  running.request.set_route(row.target == FaultTarget::kUnified ? v1::ROUTE_UNIFIED
                                                                : v1::ROUTE_DISAGGREGATED);
  if (row.target == FaultTarget::kClient && row.moment == Moment::kDecoding) {
    running.request.set_route(static_cast<v1::Route>(running.Draw(0, 2)));
  }
  // What waits for a frame needs one: nothing of its prompt may be cached at the decode worker.
  const bool alone = IsFrameMoment(row.moment) || running.Draw(0, 1) == 0;
  running.request.set_cache_salt(alone ? fmt::format("{}-{}", event.id, event.seed) : "shared");
  return RunOnCall(running);
}

bool EventRunner::RunOnCall(Running& running) {
  const FaultRow& row = running.event.row;
  bool came_about = false;
  if (running.is(FaultKind::kFreeze)) {
    came_about = RunFreeze(running);
  } else if (row.moment == Moment::kAccepted) {
    const bool unified = row.target == FaultTarget::kUnified;
    came_about = RunWhileHeld(running, unified ? FaultTarget::kUnified : FaultTarget::kDecode);
  } else if (row.moment == Moment::kQueued) {
    came_about = RunWhileHeld(running, FaultTarget::kPrefill);
  } else if (row.moment == Moment::kDecoding) {
    came_about = RunWhileDecoding(running);
  } else {
    came_about = RunOnFrame(running);
  }
  running.call->AwaitEnd();
  desk_.Take(running.ticket);
  Check(running);
  const bool expires = running.is(FaultKind::kDeadline);
  return came_about && (!expires || absl::IsDeadlineExceeded(running.call->status()));
}

// Sends it and lets it alone once its stream was seen. `before` is called when its turn has come,
// `meanwhile` once it was sent.
void EventRunner::Submit(Running& running, const std::function<void()>& before,
                         const std::function<void()>& meanwhile) {
  absl::MutexLock turn(&turn_);
  if (before) before();
  running.ticket = desk_.Set(TriggerOf(running));
  running.call = std::make_unique<GenerateCall>(*stub_, running.request, running.timeout,
                                                [this] { desk_.Nudge(); });
  running.to_cancel = running.call.get();
  ++sent_;
  if (meanwhile) meanwhile();
  GenerateCall& call = *running.call;
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
  running.did = true;
  if (row.target == FaultTarget::kFrame) {
    return {.kind = ActionOf(row.kind),
            .bits = 1 + static_cast<uint32_t>(running.event.seed % 8),
            .seed = running.event.seed};
  }
  if (row.kind == FaultKind::kDeadline) return {.kind = FrameAction::Kind::kHold};
  if (row.kind == FaultKind::kCancel) {
    GenerateCall* const call = running.to_cancel;
    if (call != nullptr) call->Cancel();
    running.did = call != nullptr;
    return {};
  }
  running.did = Disturb(running, &frame, proxy);
  // Its answer never comes.
  if (row.moment == Moment::kAck) return {.kind = FrameAction::Kind::kDrop};
  return {};
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
  const bool queued = running.event.row.moment == Moment::kQueued;
  std::unique_ptr<RoleHold> hold;  // not while others wait for the answers of those workers
  const auto before = [&] { hold = std::make_unique<RoleHold>(fleet_.members(held)); };
  Submit(running, before, [&] {
    came_about = hold->holds() && AwaitAccepted() && (!queued || AwaitReserved());
    if (came_about) came_about = ActOnCall(running);
    if (running.is(FaultKind::kDeadline)) running.call->AwaitEnd();
    hold.reset();
  });
  return came_about;
}

// A cancel, or a signal; an expiry is waited for by who calls this.
bool EventRunner::ActOnCall(Running& running) {
  if (running.call->ended()) return false;
  if (running.is(FaultKind::kDeadline)) return true;
  if (!running.is(FaultKind::kCancel)) return Disturb(running, nullptr, 0);
  running.call->Cancel();
  return true;
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

// The frozen worker must be given work before it can be missed: requests follow until it was.
bool EventRunner::RunFreeze(Running& running) {
  constexpr int kMostRequests = 40;
  Submit(running);
  FleetMember* const member = Choose(running, nullptr, 0);
  if (member == nullptr || !member->Disturb(FaultKind::kFreeze, Duration{})) return false;
  for (int i = 0; i < kMostRequests && !member->AwaitUp(Duration{}); ++i) {
    Running next{.event = running.event,
                 .expected = running.expected,
                 .random = running.random,
                 .request = running.request,
                 .timeout = running.timeout};
    next.request.set_cache_salt(fmt::format("{}-{}-{}", running.event.id, running.event.seed, i));
    Submit(next);
    next.call->AwaitEnd();
    desk_.Take(next.ticket);
    Check(next);
  }
  return true;
}

// The one that a frame came from or goes to, or the busiest.
FleetMember* EventRunner::Choose(const Running& running, const ObservedFrame* frame,
                                 size_t proxy) const {
  const FaultTarget role = running.event.row.target;
  const std::vector<FleetMember*> members = fleet_.members(role);
  if (frame != nullptr && role == FaultTarget::kDecode) return members[proxy];
  if (frame != nullptr) {
    for (FleetMember* member : members) {
      if (OwnsSocket(member->pid(), frame->sender_port)) return member;
    }
    return nullptr;
  }
  const auto status = fleet_.status().latest();
  const auto busy = [&status](const FleetMember* member) {
    const v1::WorkerStatus* worker = FindWorker(*status, member->name());
    return worker == nullptr ? 0 : worker->running() + worker->waiting();
  };
  return *std::max_element(members.begin(), members.end(),
                           [&busy](const auto* a, const auto* b) { return busy(a) < busy(b); });
}

bool EventRunner::Disturb(const Running& running, const ObservedFrame* frame, size_t proxy) {
  FleetMember* const member = Choose(running, frame, proxy);
  return member != nullptr && member->Disturb(running.event.row.kind, running.pause);
}

bool EventRunner::AwaitAccepted() {
  const uint64_t sent = sent_;
  return fleet_.status().Await(
             [sent](const v1::GetStatusResponse& status) {
               return status.requests_total() >= sent;
             },
             kAcceptedWithin) != kNoDeadline;
}

bool EventRunner::AwaitReserved() {
  const auto reserved = [](const v1::GetStatusResponse& status) {
    int32_t reservations = 0;
    for (const v1::WorkerStatus& worker : status.workers()) {
      reservations += worker.handoffs().reservations();
    }
    return reservations > 0;
  };
  return fleet_.status().Await(reserved, kAcceptedWithin) != kNoDeadline;
}

void EventRunner::Check(const Running& running) {
  const GenerateCall& call = *running.call;
  if (call.took() > running.timeout + kGrace) {
    Found(running, fmt::format("ended {:.0f} ms after it began, past its deadline",
                               ToMilliseconds(call.took())));
  }
  const std::string mismatch = Mismatch(running);
  const absl::Status& status = call.status();
  const bool may_be_cancelled = running.is(FaultKind::kCancel) && absl::IsCancelled(status);
  const bool may_expire = running.is(FaultKind::kDeadline) && absl::IsDeadlineExceeded(status);
  if (!mismatch.empty()) Found(running, mismatch);
  if (!status.ok() && !may_be_cancelled && !may_expire) Found(running, status.ToString());
  if (!mismatch.empty() || (!status.ok() && !may_be_cancelled && !may_expire)) {
    ++endings_.wrong;
  } else if (status.ok()) {
    ++endings_.ok;
  } else {
    ++(may_expire ? endings_.expired : endings_.cancelled);
  }
}

// How what the client was told differs from what it should have been; empty when it does not.
std::string EventRunner::Mismatch(const Running& running) const {
  const GenerateCall& call = *running.call;
  const auto& told = call.generation().choices;
  const auto& whole = running.expected.undisturbed.choices;
  const bool ok = call.status().ok();
  if (ok && call.summaries() != 1) return fmt::format("{} summaries", call.summaries());
  if (told.size() > whole.size() || (ok && told.size() != whole.size())) {
    return fmt::format("{} choices instead of {}", told.size(), whole.size());
  }
  for (size_t i = 0; i < told.size(); ++i) {
    const auto& tokens = told[i].token_ids;
    const auto& expected = whole[i].token_ids;
    if (!IsPrefix(tokens, expected) || (ok && tokens.size() != expected.size())) {
      return fmt::format("wrong tokens: choice {} has {} [{}] instead of {} [{}]", i, tokens.size(),
                         fmt::join(tokens, " "), expected.size(), fmt::join(expected, " "));
    }
    if (ok && told[i].finish.reason() != whole[i].finish.reason()) {
      return fmt::format("choice {} finished with {} instead of {}", i,
                         Name(told[i].finish.reason()), Name(whole[i].finish.reason()));
    }
  }
  return "";
}

void EventRunner::Found(const Running& running, const std::string& what) {
  const FaultEvent& event = running.event;
  findings_.Add(fmt::format("event={} row=\"{}\" request={} prompt_tokens={} n={}: {}", event.id,
                            Name(event.row), event.request, running.request.token_ids().ids_size(),
                            running.request.n(), what));
}

}  // namespace tandem
