#include "server/services/connection_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "server/services/descriptor_limit.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

// How long accepting pauses when the system has no descriptor or memory for one more connection, or
// when the largest allowed number of handshakes wait for this process.
constexpr int kPauseMilliseconds = 10;
constexpr std::chrono::seconds kLogInterval(10);
// When room is needed, one in this many connections is evicted at once: looking at all of them for
// each new connection would take longer than the handshakes.
constexpr int kEvictedShare = 8;
// At most one in kHandshakeShare connections may be in its handshake, but kLeastHandshakes always
// may be.
constexpr int kHandshakeShare = 8;
constexpr int kLeastHandshakes = 64;
// A handshake is not closed if something was sent in it within this time, because its peer may be
// honest. If that holds for all of them, further peers wait in the listener's queue, but silent
// peers hold them up for no longer than this.
constexpr std::chrono::milliseconds kPatience(50);

// Sets the options of a connection. A peer that acknowledges no bytes for the time within which it
// must answer a ping is disconnected.
void SetOptions(int connection, int32_t timeout_seconds) {
  const int yes = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  const int milliseconds = timeout_seconds * 1000;
  setsockopt(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
}

bool IsOutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(
    const std::string& host, uint16_t port, const ServerLimits& limits) {
  ASSIGN_OR_RETURN(const int descriptor_limit, RaiseDescriptorLimit());
  auto listeners = ListenEverywhere(host, port);
  if (!listeners.ok()) {
    return Unavailable("cannot listen on {}: choose another --host or --port: {}",
                       HostPortText(host, port), std::string(listeners.status().message()));
  }
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(limits, *std::move(listeners), descriptor_limit));
}

ConnectionAcceptor::ConnectionAcceptor(const ServerLimits& limits, std::vector<UniqueFd> listeners,
                                       int descriptor_limit)
    : limits_(limits),
      listeners_(std::move(listeners)),
      port_(LocalPort(listeners_.front())),
      first_reserved_fd_(descriptor_limit - ReservedDescriptors(descriptor_limit)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ConnectionAcceptor::~ConnectionAcceptor() { Stop(); }

void ConnectionAcceptor::Start(Handler handler) {
  handler_ = std::move(handler);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionAcceptor::Stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

v1::ConnectionUse ConnectionAcceptor::use() const {
  // A duplicate of some descriptor, whose number is the one that the next connection would get.
  const UniqueFd next(fcntl(stop_.get(), F_DUPFD_CLOEXEC, 0));
  v1::ConnectionUse use;
  use.set_limit(std::min(limits_.max_connections, first_reserved_fd_));
  use.set_refused(refused_);
  use.set_evicted(evicted_);
  absl::MutexLock lock(&mutex_);
  use.set_open(open_.Count());
  const bool has_room =
      next.valid() && (HasRoomFor(next.get()) ||
                       open_.HasAnyAcceptedAfter(HandshakeBegin(std::chrono::steady_clock::now())));
  use.set_full(out_of_descriptors_ || !has_room);
  return use;
}

void ConnectionAcceptor::Run() {
  NameThisThread("accept");
  while (!stopping_) {
    Wait(out_of_descriptors_ || too_many_handshakes_ ? WaitFor::kPause : WaitFor::kConnections);
    out_of_descriptors_ = false;
    too_many_handshakes_ = false;
    for (const UniqueFd& listener : listeners_) AcceptAll(listener);
  }
}

void ConnectionAcceptor::Wait(WaitFor what) {
  std::vector<pollfd> fds = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  if (what == WaitFor::kConnections) {
    for (const UniqueFd& listener : listeners_) {
      fds.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
    }
  }
  poll(fds.data(), fds.size(), what == WaitFor::kPause ? kPauseMilliseconds : -1);
}

void ConnectionAcceptor::AcceptAll(const UniqueFd& listener) {
  while (!stopping_) {
    if (!MayShakeHands()) {
      too_many_handshakes_ = true;
      return;
    }
    const int connection = accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      out_of_descriptors_ = out_of_descriptors_ || IsOutOfResources(errno);
      return;
    }
    SetOptions(connection, limits_.keepalive_timeout_seconds);
    const TimePoint now = std::chrono::steady_clock::now();
    bool taken = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!HasRoomFor(connection)) MakeRoom(now);
      taken = HasRoomFor(connection);
      if (taken) open_.Add(connection, now);
    }
    if (taken) {
      handler_(connection);
    } else {
      close(connection);
      ++refused_;
      LogLackOfRoom(now);
    }
  }
}

void ConnectionAcceptor::MakeRoom(TimePoint now) {
  const int most = std::max(open_.upper_bound() / kEvictedShare, 1);
  CountEvicted(open_.EvictQuietest(HandshakeBegin(now), most), now);
}

bool ConnectionAcceptor::MayShakeHands() {
  const int most = std::max(limits_.max_connections / kHandshakeShare, kLeastHandshakes);
  absl::MutexLock lock(&mutex_);
  if (open_.unfinished_upper_bound() < most) return true;
  const TimePoint now = std::chrono::steady_clock::now();
  // Evicts more than one, so that not each new connection has to look at all handshakes.
  CountEvicted(open_.EvictUnfinished(HandshakeBegin(now), kPatience, most - most / kEvictedShare),
               now);
  return open_.unfinished_upper_bound() < most;
}

void ConnectionAcceptor::CountEvicted(int evicted, TimePoint now) {
  if (evicted == 0) return;
  evicted_ += static_cast<uint64_t>(evicted);
  LogLackOfRoom(now);
}

bool ConnectionAcceptor::HasRoomFor(int fd) const {
  if (fd >= first_reserved_fd_) return false;
  return open_.upper_bound() < limits_.max_connections || open_.Count() < limits_.max_connections;
}

void ConnectionAcceptor::LogLackOfRoom(TimePoint now) {
  if (now < next_log_) return;
  next_log_ = now + kLogInterval;
  LogWarn(
      "too many connections port={} refused={} evicted={} max_connections={} max_descriptors={}: "
      "close idle clients, raise --max-connections or the limit on open files (ulimit -n); evicted "
      "ones had not ended their handshake",
      port_, refused_.load(), evicted_.load(), limits_.max_connections, first_reserved_fd_);
}

}  // namespace tandem
