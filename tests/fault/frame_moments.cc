// Faults at frames: which frame of its stream a request waits for, and what is done then.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>

#include "tests/fault/event_runner.h"
#include "tests/fault/running_event.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// The pause before a stream is opened again for the third time is 200 ms
// (engine/handoff/sender.cc): a deadline falls into its middle.
constexpr uint32_t kCutsBeforeThePause = 2;
constexpr milliseconds kWithinThePause(100);
// A hand-off has a frame for each layer of each block.
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

}  // namespace

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

}  // namespace tandem
