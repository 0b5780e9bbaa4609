#include "transfer/tcp/io_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

constexpr uint64_t kWakeId = 0;
constexpr uint64_t kListenerId = 1;
constexpr uint64_t kFirstConnectionId = 2;
// After accept failed for want of descriptors or memory.
constexpr std::chrono::milliseconds kAcceptPause{200};

std::string_view Text(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

}  // namespace

absl::StatusOr<LoopSockets> LoopSockets::Open(UniqueFd listener) {
  LoopSockets sockets = {.listener = std::move(listener),
                         .epoll = UniqueFd(epoll_create1(EPOLL_CLOEXEC)),
                         .wake = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))};
  if (sockets.epoll.valid() && sockets.wake.valid()) return sockets;
  return Unavailable("cannot make an epoll loop: {}", ErrnoMessage(errno));
}

IoLoop::IoLoop(const TcpOptions& options, LoopSockets sockets, FrameReceiver& receiver,
               SendStreams& streams, TransportCounters& counters)
    : options_(options),
      sockets_(std::move(sockets)),
      receiver_(receiver),
      streams_(streams),
      counters_(counters),
      next_id_(kFirstConnectionId),
      resolver_([this](uint64_t id, absl::StatusOr<std::vector<SocketAddress>> addresses) {
        Post(ResolvedCommand{.connection = id, .addresses = std::move(addresses)});
      }) {
  Watch(sockets_.wake.get(), kWakeId);
  Watch(sockets_.listener.get(), kListenerId);
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
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    first = commands_.empty();
    commands_.push_back(std::move(command));
  }
  if (first) Wake();
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

bool IoLoop::Stopping() {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void IoLoop::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count =
        epoll_wait(sockets_.epoll.get(), events.data(), events.size(), WaitMilliseconds());
    for (int i = 0; i < count; ++i) Handle(events[i].data.u64, events[i].events);
    CloseOverdue();
    if (Stopping()) break;
  }
  Shutdown();
}

int IoLoop::WaitMilliseconds() const {
  TimePoint earliest = accept_again_;
  for (const auto& [id, slot] : slots_) earliest = std::min(earliest, slot.connection->deadline());
  if (earliest == kNoDeadline) return -1;
  const auto left = earliest - std::chrono::steady_clock::now();
  // Rounded up, so that the loop does not spin through the last millisecond.
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

void IoLoop::Watch(int fd, uint64_t id) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  TANDEM_CHECK(epoll_ctl(sockets_.epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0,
               "epoll_ctl of a socket");
}

void IoLoop::UpdateInterest(uint64_t id, Slot& slot) {
  const int fd = slot.connection->fd();
  const uint32_t interest = EPOLLIN | (slot.connection->wants_write() ? EPOLLOUT : 0u);
  if (fd < 0 || (fd == slot.watched_fd && interest == slot.interest)) return;
  epoll_event event{.events = interest, .data = {.u64 = id}};
  const int operation = fd == slot.watched_fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  TANDEM_CHECK(epoll_ctl(sockets_.epoll.get(), operation, fd, &event) == 0,
               "epoll_ctl of a socket");
  slot.watched_fd = fd;
  slot.interest = interest;
}

void IoLoop::Handle(uint64_t id, uint32_t events) {
  if (id == kWakeId) return ExecuteCommands();
  if (id == kListenerId) return Accept();
  const auto place = slots_.find(id);
  if (place == slots_.end()) return;  // closed by an event before
  Connection& connection = *place->second.connection;
  absl::Status status;
  if ((events & ~uint32_t{EPOLLOUT}) != 0) status = connection.OnReadable();
  const bool writable = (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0;
  if (status.ok() && writable) status = connection.OnWritable();
  if (status.ok()) {
    UpdateInterest(id, place->second);
  } else {
    Close(id, status);
  }
  EndStreams();
}

void IoLoop::Close(uint64_t id, const absl::Status& status) {
  auto node = slots_.extract(id);
  TANDEM_CHECK(!node.empty(), "closed a connection twice");
  std::string_view peer = "(inbound)";
  const auto is_peer = [&](const auto& entry) { return entry.second.id == id; };
  const auto place = std::find_if(peers_.begin(), peers_.end(), is_peer);
  std::string name;
  if (place != peers_.end()) {
    name = place->first;
    peer = name;
    peers_.erase(place);
  } else {
    --num_inbound_;
  }
  // Between frames it is everyday: a worker stops, its peers notice.
  const bool idle = node.mapped().connection->deadline() == kNoDeadline;
  const auto level = !absl::IsUnavailable(status) ? spdlog::level::warn
                     : idle                       ? spdlog::level::debug
                                                  : spdlog::level::info;
  spdlog::log(level, "transfer connection closed peer={} reason=\"{}\"", peer, Text(status));
  node.mapped().connection->OnClosed(status);
  node.mapped().connection.reset();
  absl::erase_if(routes_, [&](const auto& entry) {
    const auto& [key, route] = entry;
    if (route.id != id) return false;
    ended_.push_back({key, route.serial, Unavailable("connection to {}: {}", peer, Text(status))});
    return true;
  });
}

void IoLoop::CloseOverdue() {
  const TimePoint now = std::chrono::steady_clock::now();
  std::vector<uint64_t> overdue;
  for (const auto& [id, slot] : slots_) {
    if (slot.connection->deadline() <= now) overdue.push_back(id);
  }
  for (uint64_t id : overdue) Close(id, Unavailable("timed out: nothing moved"));
  if (accept_again_ <= now) ResumeAccepting();
  EndStreams();
}

void IoLoop::Accept() {
  while (true) {
    UniqueFd socket(
        accept4(sockets_.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) break;
    if (num_inbound_ >= options_.max_connections) {
      spdlog::warn("transfer connection refused: there are {} already", num_inbound_);
      continue;
    }
    SetStreamOptions(socket);
    const uint64_t id = next_id_++;
    Slot& slot = slots_[id];
    slot.connection = std::make_unique<InboundConnection>(std::move(socket), receiver_, counters_,
                                                          options_.stall_timeout);
    ++num_inbound_;
    UpdateInterest(id, slot);
  }
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
  // The connection stays in the backlog and the listener readable: look again after a pause.
  spdlog::warn("transfer cannot accept: {}", ErrnoMessage(errno));
  accept_again_ = std::chrono::steady_clock::now() + kAcceptPause;
  epoll_ctl(sockets_.epoll.get(), EPOLL_CTL_DEL, sockets_.listener.get(), nullptr);
}

void IoLoop::ResumeAccepting() {
  accept_again_ = kNoDeadline;
  Watch(sockets_.listener.get(), kListenerId);
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
