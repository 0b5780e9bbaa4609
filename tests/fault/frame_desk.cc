#include "tests/fault/frame_desk.h"

#include <algorithm>

namespace tandem {
namespace {

// Streams of the transports' own, which measure links.
constexpr uint64_t kProbeBit = uint64_t{1} << 63;

bool IsOfAStream(const ObservedFrame& frame) {
  return frame.header.type != FrameType::kHello && frame.header.type != FrameType::kCredit;
}

}  // namespace

FrameDesk::FrameDesk(std::vector<FrameProxy*> proxies) : proxies_(std::move(proxies)) {
  for (size_t i = 0; i < proxies_.size(); ++i) {
    proxies_[i]->SetHook([this, i](const ObservedFrame& frame) { return OnFrame(i, frame); });
  }
}

FrameDesk::~FrameDesk() {
  for (FrameProxy* proxy : proxies_) proxy->Heal();
}

FrameDesk::Ticket FrameDesk::Set(FrameTrigger trigger) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back({.ticket = next_, .trigger = std::move(trigger)});
  return next_++;
}

bool FrameDesk::Take(Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                  [ticket](const Waiting& one) { return one.ticket == ticket; });
  if (place == waiting_.end()) return false;
  const auto at_rest = [&place] { return !place->acting; };
  mutex_.Await(absl::Condition(&at_rest));
  const bool fired = place->fired;
  waiting_.erase(place);
  return fired;
}

const FrameDesk::Waiting* FrameDesk::Find(Ticket ticket) const {
  for (const Waiting& one : waiting_) {
    if (one.ticket == ticket) return &one;
  }
  return nullptr;
}

bool FrameDesk::AwaitFired(Ticket ticket, const std::function<bool()>& over) const {
  const auto done = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const Waiting* one = Find(ticket);
    return one == nullptr || (one->fired && !one->acting) || over();
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&done));
  const Waiting* one = Find(ticket);
  return one != nullptr && one->fired && !one->acting;
}

void FrameDesk::AwaitClaimed(Ticket ticket, const std::function<bool()>& over) const {
  const auto done = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const Waiting* one = Find(ticket);
    return one == nullptr || one->fired || one->stream.has_value() || over();
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&done));
}

std::optional<FrameDesk::Way> FrameDesk::WayOf(Ticket ticket) const {
  absl::MutexLock lock(&mutex_);
  const Waiting* one = Find(ticket);
  if (one == nullptr || !one->stream) return std::nullopt;
  return one->way;
}

bool FrameDesk::IsQuietSince(Ticket ticket) const {
  absl::MutexLock lock(&mutex_);
  const Waiting* one = Find(ticket);
  return one != nullptr && one->fired && one->frames_since == 0;
}

void FrameDesk::Nudge() {
  absl::MutexLock lock(&mutex_);
  ++nudges_;  // waiters look again when the lock is let go
}

void FrameDesk::Release() {
  for (FrameProxy* proxy : proxies_) proxy->Release();
}

FrameAction FrameDesk::OnFrame(size_t proxy, const ObservedFrame& frame) {
  Waiting* firing = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (IsOfAStream(frame) && (frame.header.stream & kProbeBit) != 0) return {};
    ClaimStream(proxy, frame);
    for (Waiting& one : waiting_) {
      const Verdict verdict = Judge(one, frame);
      if (verdict == Verdict::kDrop) return {.kind = FrameAction::Kind::kDrop};
      if (verdict == Verdict::kCut) return {.kind = FrameAction::Kind::kCutBefore};
      if (verdict == Verdict::kPass) continue;
      one.fired = one.acting = true;
      firing = &one;  // stays while it acts
      break;
    }
  }
  if (firing == nullptr) return {};
  const FrameAction action = firing->trigger.act(frame, proxy);
  absl::MutexLock lock(&mutex_);
  firing->acting = false;
  return action;
}

void FrameDesk::ClaimStream(size_t proxy, const ObservedFrame& frame) {
  if (!IsOfAStream(frame) || frame.direction != FrameDirection::kToReceiver) return;
  const StreamId stream = {frame.header.stream, frame.header.epoch};
  if (!seen_.insert(stream).second) return;
  for (Waiting& one : waiting_) {
    if (one.trigger.whose != FrameTrigger::Whose::kNextStream || one.stream) continue;
    one.stream = stream;
    one.way = {.proxy = proxy, .sender_port = frame.sender_port};
    return;
  }
}

bool FrameDesk::IsToBeLost(const Waiting& one, FrameType type) {
  const FrameTrigger::Lose lose = one.trigger.lose;
  if (lose == FrameTrigger::Lose::kCommit) return type == FrameType::kCommit;
  return lose == FrameTrigger::Lose::kData && type == FrameType::kData && one.data_frames == 2;
}

// Of the stream that it waits for.
bool FrameDesk::IsMeant(const Waiting& one, const ObservedFrame& frame) {
  if (one.trigger.whose == FrameTrigger::Whose::kAny) return true;
  return IsOfAStream(frame) && one.stream == StreamId(frame.header.stream, frame.header.epoch);
}

FrameDesk::Verdict FrameDesk::Judge(Waiting& one, const ObservedFrame& frame) {
  if (!IsMeant(one, frame)) return Verdict::kPass;
  if (one.fired) {
    ++one.frames_since;
    return Verdict::kPass;
  }
  const FrameTrigger& trigger = one.trigger;
  const FrameType type = frame.header.type;
  if (type == FrameType::kData) ++one.data_frames;
  if (!one.lost && IsToBeLost(one, type)) {
    one.lost = true;
    return Verdict::kDrop;
  }
  if (!trigger.any_type) {
    if (type != trigger.type) return Verdict::kPass;
    if (trigger.lose != FrameTrigger::Lose::kNothing && !one.lost) return Verdict::kPass;
    if (type == FrameType::kData && one.data_frames != trigger.nth) return Verdict::kPass;
  }
  if (one.cuts == trigger.cuts_before) return Verdict::kFire;
  ++one.cuts;
  return Verdict::kCut;
}

}  // namespace tandem
