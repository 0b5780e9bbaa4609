#include "server/http/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <exception>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "base/unique_fd.h"
#include "server/http/connection.h"
#include "server/services/descriptor_limit.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

// How many connections are accepted in a row before other work of the I/O thread gets a turn.
constexpr int kAcceptedAtOnce = 64;
// How long accepting rests when the system has no descriptor or memory for one more connection.
constexpr std::chrono::milliseconds kPause(100);
constexpr Duration kLogInterval = std::chrono::seconds(10);
// A peer whose machine does not acknowledge anything for so long is gone.
constexpr int kUnacknowledgedMilliseconds = 60'000;
constexpr int kKeepIdleSeconds = 30;
constexpr int kKeepIntervalSeconds = 10;
// How many unsent bytes of a connection the system may hold. By default it would hold megabytes for
// each client that does not read, beyond the bounds that this server has on queued bytes.
constexpr int kMaxUnsentBytes = 128 << 10;

void SetInt(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

void SetOptions(int socket) {
  SetInt(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
  SetInt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kMaxUnsentBytes);
  SetInt(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetInt(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  SetInt(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
}

std::string Text(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int error = getnameinfo(address, size, host, sizeof(host), port, sizeof(port),
                                NI_NUMERICHOST | NI_NUMERICSERV);
  return error == 0 ? HostPortText(host, static_cast<uint16_t>(std::stoi(port))) : "unknown";
}

bool IsOutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// An I/O context and the thread that runs it.
class IoThread {
 public:
  IoThread() : io_(1), work_(io_.get_executor()) {}

  asio::io_context& io() { return io_; }
  void Start() {
    thread_ = std::thread([this] {
      NameThisThread("http");
      Run();
    });
  }
  void Stop() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    while (!io_.stopped()) {
      try {
        io_.run();
      } catch (const std::exception& error) {
        LogError("an HTTP task failed what={}", error.what());
      }
    }
  }

  asio::io_context io_;
  const asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

// Sends a 503 without waiting for the client, for when even RefuseConnection has no room.
void SendNoRoom(int socket) {
  const HttpResponse response = HttpError(503, "the server has too many connections");
  const std::string bytes = RenderHead({.status = response.status,
                                        .content_type = response.content_type,
                                        .headers = {{"Retry-After", "1"}},
                                        .content_length = response.body.size(),
                                        .after = AfterAnswer::kClose}) +
                            response.body;
  send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(socket, SHUT_WR);
}

}  // namespace

// The state of a server. It accepts on the first I/O thread and hands connections to all I/O
// threads in turn.
struct HttpServer::Parts {
  Parts(const HttpServerOptions& options, std::vector<HttpRoute> routes,
        std::unique_ptr<HttpTls> tls_files, int descriptors)
      : first_reserved_fd(descriptors - ReservedDescriptors(descriptors) / 2),
        tls(std::move(tls_files)),
        server(options, std::move(routes), std::min(options.max_connections, first_reserved_fd)),
        threads(static_cast<size_t>(std::max(options.io_threads, 1))) {}

  awaitable<void> Accept(asio::posix::stream_descriptor& listener);
  // Accepts what is waiting. False when the system has no descriptor or memory for another
  // connection.
  bool AcceptSome(int listener);
  void Take(int socket, std::string remote);
  void Serve(asio::io_context& io, int socket, std::string remote);
  void Refuse();

  // A connection whose descriptor is not below this number is kept only if another one is closed
  // for it: the numbers above are for other needs, such as files and connections to workers. The
  // gRPC port leaves twice as many free, so that pages about the process can be had when that port
  // is full.
  const int first_reserved_fd;
  const std::unique_ptr<HttpTls> tls;  // null: in the clear
  ServedHttp server;
  std::vector<IoThread> threads;
  std::vector<asio::posix::stream_descriptor> listeners;  // used by the first I/O thread only
  uint16_t port = 0;
  size_t next_thread = 0;  // used by the first I/O thread only
  std::atomic<uint64_t> refused = 0;
  TimePoint next_log;  // used by the first I/O thread only
  bool is_over = false;
};

awaitable<void> HttpServer::Parts::Accept(asio::posix::stream_descriptor& listener) {
  boost::system::error_code error;
  asio::steady_timer pause(threads[0].io());
  while (true) {
    co_await listener.async_wait(asio::posix::stream_descriptor::wait_read,
                                 asio::redirect_error(asio::use_awaitable, error));
    if (error || server.draining) co_return;
    if (AcceptSome(listener.native_handle())) continue;
    server.book.CloseOldest();
    pause.expires_after(kPause);
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

bool HttpServer::Parts::AcceptSome(int listener) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    SocketAddress address{.size = sizeof(sockaddr_storage)};
    auto* const name = reinterpret_cast<sockaddr*>(&address.storage);
    const int socket = accept4(listener, name, &address.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return !IsOutOfResources(errno);
    }
    SetOptions(socket);
    Take(socket, Text(name, address.size));
  }
  return true;
}

void HttpServer::Parts::Take(int socket, std::string remote) {
  // The system gives out the lowest free descriptor, so the numbers from first_reserved_fd on
  // remain for the rest of the process.
  if (socket >= first_reserved_fd && !server.book.CloseOldest()) {
    close(socket);
    return Refuse();
  }
  asio::io_context& io = threads[next_thread].io();
  next_thread = (next_thread + 1) % threads.size();
  asio::post(io, [this, &io, socket, remote = std::move(remote)]() mutable {
    Serve(io, socket, std::move(remote));
  });
}

void HttpServer::Parts::Serve(asio::io_context& io, int socket, std::string remote) {
  if (!server.draining && ServeConnection(io, server, socket, tls.get(), std::move(remote))) return;
  if (server.draining || !RefuseConnection(io, server, socket, tls.get())) {
    if (tls == nullptr) SendNoRoom(socket);
    close(socket);
  }
  asio::post(threads[0].io(), [this] { Refuse(); });
}

void HttpServer::Parts::Refuse() {
  const uint64_t count = ++refused;
  const TimePoint now = std::chrono::steady_clock::now();
  if (now < next_log) return;
  next_log = now + kLogInterval;
  LogWarn(
      "HTTP connection refused port={} refused={} max_connections={}: all are being answered; "
      "raise "
      "--max-connections or the limit on open files (ulimit -n)",
      port, count, server.book.limit());
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              std::vector<HttpRoute> routes) {
  ASSIGN_OR_RETURN(const int descriptors, RaiseDescriptorLimit());
  ASSIGN_OR_RETURN(std::unique_ptr<HttpTls> tls, HttpTls::Open(options));
  ASSIGN_OR_RETURN(const std::vector<UniqueFd> sockets,
                   ListenEverywhere(options.host, options.port));
  auto parts = std::make_unique<Parts>(options, std::move(routes), std::move(tls), descriptors);
  parts->port = LocalPort(sockets.front());
  for (const UniqueFd& socket : sockets) {
    parts->listeners.emplace_back(parts->threads[0].io(), dup(socket.get()));
  }
  for (asio::posix::stream_descriptor& listener : parts->listeners) {
    asio::co_spawn(parts->threads[0].io(), parts->Accept(listener), asio::detached);
  }
  for (IoThread& thread : parts->threads) thread.Start();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(parts)));
}

HttpServer::HttpServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

HttpServer::~HttpServer() { Drain(std::chrono::steady_clock::now()); }

uint16_t HttpServer::port() const { return parts_->port; }

HttpUse HttpServer::use() const {
  return {.open = parts_->server.book.open(),
          .limit = parts_->server.book.limit(),
          .requests = parts_->server.requests,
          .refused = parts_->refused,
          .evicted = parts_->server.book.evicted(),
          .refusals = parts_->server.refusals.counts()};
}

void HttpServer::Drain(TimePoint deadline) {
  if (parts_->is_over) return;
  parts_->is_over = true;
  parts_->server.draining = true;
  absl::Notification closed;
  asio::post(parts_->threads[0].io(), [this, &closed] {
    boost::system::error_code ignored;
    for (asio::posix::stream_descriptor& listener : parts_->listeners) listener.close(ignored);
    closed.Notify();
  });
  closed.WaitForNotification();
  ConnectionBook& book = parts_->server.book;
  book.CloseWaiting();
  if (!book.AwaitEmpty(deadline)) {
    book.CloseAll();
    book.AwaitEmpty(kNoDeadline);
  }
  for (IoThread& thread : parts_->threads) thread.Stop();
}

}  // namespace tandem
