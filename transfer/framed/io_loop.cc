#include "transfer/framed/io_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {
// The loop turns as often: for who counts its turns, and for commands that wake nobody.
constexpr std::chrono::milliseconds kTurnAtLeast{500};

// A stream is opened with its first post, or at the loop's next turn. To open it alone would wake
// the loop twice, and the first time while its poster begins to compute. A lease is long enough for
// that: what is six turns long was prolonged, or made, a moment ago.
bool MayWait(const LoopCommand& command) {
  const auto* open = std::get_if<OpenCommand>(&command);
  return open != nullptr && open->renew_every >= kTurnAtLeast;
}

std::string_view Text(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// How the streams of a connection end with it. Peers that disagree (TLS, another version) would do
// so again at once; anything else is a loss. So is it where a medium with lanes does not suit the
// two (their devices do not reach each other, they have two versions of NCCL): another one does.
absl::Status EndOfStreams(std::string_view peer, const absl::Status& status, const Medium& medium) {
  if (!absl::IsFailedPrecondition(status) || medium.has_lanes()) {
    return Unavailable("connection to {}: {}", peer, Text(status));
  }
  return Annotate(status, fmt::format("connection to {}", peer));
}

}  // namespace

absl::StatusOr<LoopSockets> LoopSockets::Open() {
  LoopSockets sockets = {.epoll = UniqueFd(epoll_create1(EPOLL_CLOEXEC)),
                         .wake = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))};
  if (sockets.epoll.valid() && sockets.wake.valid()) return sockets;
  return Unavailable("cannot make an epoll loop: {}", ErrnoMessage(errno));
}

IoLoop::IoLoop(const FramedOptions& options, LoopSockets sockets, Medium& medium,
               FrameReceiver& receiver, const PayloadWays& payloads, SendStreams& streams,
               Links& links, TransportCounters& counters)
    : options_(options),
      sockets_(std::move(sockets)),
      medium_(medium),
      receiver_(receiver),
      payloads_(payloads),
      streams_(streams),
      links_(links),
      counters_(counters),
      next_id_(kFirstConnectionId) {
  Watch(sockets_.wake.get(), kWakeId);
  Watch(medium_.listener_fd(), kListenerId);
  thread_ = std::thread([this] { Run(); });
}

IoLoop::~IoLoop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
}

void IoLoop::Post(LoopCommand command) {
  {
    absl::MutexLock lock(&mutex_);
    const bool may_wait = MayWait(command);
    commands_.push_back(std::move(command));
    if (may_wait || !std::exchange(asleep_, false)) return;
  }
  Wake();
}

void IoLoop::Abort(StreamKey key, uint64_t serial) {
  if (std::this_thread::get_id() == thread_.get_id()) {
    Drop(key, serial);
    return;
  }
  absl::Notification done;
  Post(AbortCommand{.key = key, .serial = serial, .done = &done});
  done.WaitForNotification();
}

void IoLoop::Wake() const {
  const uint64_t one = 1;
  // Fails only when the counter is full: then the loop has been woken already.
  [[maybe_unused]] const ssize_t written = write(sockets_.wake.get(), &one, sizeof(one));
}

bool IoLoop::FallAsleep() {
  absl::MutexLock lock(&mutex_);
  asleep_ = commands_.empty();
  return asleep_;
}

bool IoLoop::Stopping() {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void IoLoop::Run() {
  NameThisThread(fmt::format("kv-{}", medium_.name()).c_str());
  std::array<epoll_event, 64> events;
  while (true) {
    if (options_.turns != nullptr && medium_.health().ok()) {
      options_.turns->fetch_add(1, std::memory_order_relaxed);
    }
    const int most_ms = WaitMilliseconds();
    const int wait_ms = most_ms != 0 && FallAsleep() ? most_ms : 0;
    const int count = epoll_wait(sockets_.epoll.get(), events.data(), events.size(), wait_ms);
    for (int i = 0; i < count; ++i) Handle(events[i].data.u64);
    ExecuteCommands();
    // The timers look through the peers for those that have something new to send.
    RunTimers();
    AdvanceUnfinished();
    CloseOverdue();
    AdvanceThoseWithoutSlots();
    if (Stopping()) break;
  }
  Shutdown();
}

int IoLoop::WaitMilliseconds() const {
  if (!unfinished_.empty()) return 0;
  // A callback may have dropped what had slots.
  if (payloads_.staged_out != nullptr && payloads_.staged_out->has_turn()) return 0;
  TimePoint earliest = accept_again_;
  for (const auto& [id, slot] : slots_) earliest = std::min(earliest, slot.connection->deadline());
  const TimePoint now = std::chrono::steady_clock::now();
  for (const auto& [name, peer] : peers_) {
    if (peer->group->has_news()) return 0;
    earliest = std::min({earliest, peer->group->wake_at(), AnswerDeadline(*peer->group)});
  }
  const auto left = std::min(earliest, now + kTurnAtLeast) - now;
  // Rounded up, so that the loop does not spin through the last millisecond.
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::max<int64_t>(ms, 0));
}

void IoLoop::Watch(int fd, uint64_t id) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  TANDEM_CHECK(epoll_ctl(sockets_.epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0,
               "epoll_ctl of a socket");
}

void IoLoop::UpdateInterest(uint64_t id, Slot& slot) {
  const int fd = slot.connection->fd();
  const uint32_t interest = EPOLLIN | (slot.connection->wants_output() ? EPOLLOUT : 0u);
  if (fd < 0 || (fd == slot.watched_fd && interest == slot.interest)) return;
  epoll_event event{.events = interest, .data = {.u64 = id}};
  const int operation = fd == slot.watched_fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  TANDEM_CHECK(epoll_ctl(sockets_.epoll.get(), operation, fd, &event) == 0,
               "epoll_ctl of a socket");
  slot.watched_fd = fd;
  slot.interest = interest;
}

void IoLoop::Handle(uint64_t id) {
  if (id == kWakeId) return ClearWake();
  if (id == kListenerId) return Accept();
  Advance(id);
  EndStreams();
}

void IoLoop::Advance(uint64_t id) {
  const auto place = slots_.find(id);
  if (place == slots_.end()) return;  // closed by an event before
  Slot& slot = place->second;
  const absl::StatusOr<Turn> turn = slot.connection->Advance();
  if (!turn.ok()) return Close(id, turn.status());
  if (*turn == Turn::kMore) unfinished_.push_back(id);
  UpdateInterest(id, slot);
  if (slot.peer != nullptr && slot.peer->group->TakeNews()) AdvanceAll(*slot.peer);
}

void IoLoop::AdvanceUnfinished() {
  for (uint64_t id : std::exchange(unfinished_, {})) Advance(id);
  EndStreams();
}

void IoLoop::AdvanceThoseWithoutSlots() {
  if (payloads_.staged_out == nullptr) return;
  while (const std::optional<uint64_t> id = payloads_.staged_out->BeginTurn()) {
    Advance(*id);
    payloads_.staged_out->EndTurn();
  }
  EndStreams();
}

void IoLoop::AdvanceAll(const Peer& peer) {
  unfinished_.insert(unfinished_.end(), peer.ids.begin(), peer.ids.end());
}

void IoLoop::RunTimers() {
  const TimePoint now = std::chrono::steady_clock::now();
  for (auto& [name, peer] : peers_) {
    if (peer->group->wake_at() > now) continue;
    peer->group->OnTimer(now);
  }
  for (auto& [name, peer] : peers_) {
    if (peer->group->TakeNews()) AdvanceAll(*peer);
  }
}

void IoLoop::Close(uint64_t id, const absl::Status& status) {
  const auto place = slots_.find(id);
  TANDEM_CHECK(place != slots_.end(), "closed a connection twice");
  if (Peer* peer = place->second.peer; peer != nullptr) return ClosePeer(*peer, status);
  const auto group = inbound_groups_.find(place->second.group_id);
  if (group == inbound_groups_.end()) return CloseInbound(id, status);
  const std::unique_ptr<InboundGroup> closing = std::move(group->second);
  inbound_groups_.erase(group);
  for (uint64_t member : closing->members()) CloseInbound(member, status);
}

void IoLoop::CloseInbound(uint64_t id, const absl::Status& status) {
  --num_inbound_;
  CloseSlot(id, "(inbound)", status);
}

void IoLoop::ClosePeer(Peer& peer, const absl::Status& status) {
  const std::unique_ptr<Peer> closing = std::move(peers_.at(peer.group->peer()));
  const std::string& name = closing->group->peer();
  peers_.erase(name);
  for (uint64_t id : closing->ids) CloseSlot(id, name, status);
  absl::erase_if(routes_, [&](const auto& entry) {
    const auto& [key, route] = entry;
    if (route.peer != closing.get()) return false;
    closing->group->link().StreamFailed();
    ended_.push_back({key, route.serial, EndOfStreams(name, status, medium_)});
    return true;
  });
}

void IoLoop::CloseSlot(uint64_t id, std::string_view peer, const absl::Status& status) {
  auto node = slots_.extract(id);
  Connection& connection = *node.mapped().connection;
  // Between frames it is everyday: a worker stops, its peers notice.
  const bool idle = connection.deadline() == kNoDeadline;
  const auto level = !absl::IsUnavailable(status) ? spdlog::level::warn
                     : idle                       ? spdlog::level::debug
                                                  : spdlog::level::info;
  spdlog::log(level, "transfer connection closed peer={} reason=\"{}\"", peer, Text(status));
  connection.OnClosed(status);
}

void IoLoop::CloseOverdue() {
  const TimePoint now = std::chrono::steady_clock::now();
  std::vector<uint64_t> overdue;
  for (const auto& [id, slot] : slots_) {
    if (slot.connection->deadline() <= now) overdue.push_back(id);
  }
  for (uint64_t id : overdue) {
    if (IsSilent(id)) {
      CloseStranger(id, Unavailable("it has said nothing for too long"));
    } else if (slots_.contains(id)) {  // it did not go with another one of its group
      Close(id, Unavailable("timed out: nothing moved"));
    }
  }
  CloseUnanswering(now);
  if (accept_again_ <= now) ResumeAccepting();
  EndStreams();
}

TimePoint IoLoop::AnswerDeadline(const OutboundGroup& group) const {
  const TimePoint since = group.silent_since();
  return since == kNoDeadline ? kNoDeadline : since + options_.answer_timeout;
}

void IoLoop::CloseUnanswering(TimePoint now) {
  std::vector<std::pair<std::string, std::vector<uint64_t>>> overdue;
  for (const auto& [name, peer] : peers_) {
    if (AnswerDeadline(*peer->group) <= now) overdue.emplace_back(name, peer->ids);
  }
  for (const auto& [name, ids] : overdue) {
    for (const uint64_t id : ids) Advance(id);  // what came while this side stood still
    const auto place = peers_.find(name);
    if (place == peers_.end() || AnswerDeadline(*place->second->group) > now) continue;
    ClosePeer(*place->second, place->second->group->NoAnswer(now));
  }
}

void IoLoop::Shutdown() {
  const absl::Status status = Unavailable("the transport was shut down");
  while (!slots_.empty()) Close(slots_.begin()->first, status);
  EndStreams();
  streams_.Close(status);
  for (LoopCommand& command : TakeCommands()) {
    if (auto* abort = std::get_if<AbortCommand>(&command)) abort->done->Notify();
  }
}

}  // namespace tandem
