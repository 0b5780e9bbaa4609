#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "server/services/open_connections.h"
#include "server/services/server_limits.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Accepts the connections of a gRPC server in gRPC's place, because the listener of gRPC 1.51 never
// accepts again once it has run out of descriptors. This acceptor stays below `max_connections` and
// below the process's limit on descriptors.
//
// When there is no room, connections that may still be in their handshake are evicted: those that
// were accepted within the last `handshake_seconds`, since gRPC closes a connection whose handshake
// takes longer. The peers that have sent the fewest bytes are evicted first, so that peers which
// connect and send little keep no other peer out. When all connections are older than that, the new
// one is closed at once. Both cases are logged and counted.
//
// At most one in eight connections may be in its handshake, which takes some 40 KiB over TLS.
// Beyond that the handshakes are evicted in which nothing has been sent for the longest time. Where
// nearly all handshakes wait for this process, further peers wait in the listener's queue:
// thousands that come at once would otherwise take the processors from the established connections,
// and workers would lose their leases.
//
// A connection is kept only if its descriptor's number is below the limit minus a reserve. The
// system gives out the lowest free number, so the numbers above always remain for the rest of the
// process.
class ConnectionAcceptor {
 public:
  // Takes over the descriptor of an accepted connection, and must close it in the end.
  using Handler = std::function<void(int connection)>;

  // Listens on every address of `host`; port 0: the system chooses. Nothing is accepted before
  // Start. UNAVAILABLE with the address.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(const std::string& host,
                                                                    uint16_t port,
                                                                    const ServerLimits& limits);
  // Ends accepting like Stop.
  ~ConnectionAcceptor();

  uint16_t port() const { return port_; }
  // Accepts on a thread of its own, which calls `handler` with each connection, non-blocking.
  void Start(Handler handler);
  // Stops accepting: the handler is not called afterwards. Idempotent.
  void Stop();

  // The number of connections, their limit, and counts of refusals. Costs one system call for each
  // open connection. Thread-safe.
  v1::ConnectionUse use() const;

 private:
  ConnectionAcceptor(const ServerLimits& limits, std::vector<UniqueFd> listeners,
                     int descriptor_limit);

  void Run();
  void AcceptAll(const UniqueFd& listener);
  // Whether a connection whose descriptor is `fd` may be kept.
  bool HasRoomFor(int fd) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Evicts some of the connections that may still be in their handshake. The descriptor of an
  // evicted connection becomes free only once gRPC has noticed.
  void MakeRoom(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether one more connection may begin its handshake, for which others may have been closed.
  bool MayShakeHands();
  void CountEvicted(int evicted, TimePoint now);
  // A connection that was accepted later than this may still be in its handshake.
  TimePoint HandshakeBegin(TimePoint now) const {
    return now - std::chrono::seconds(limits_.handshake_seconds);
  }
  // Logs that connections were refused or evicted, at most one line in ten seconds.
  void LogLackOfRoom(TimePoint now);
  // Waits until one of `listeners_` has a connection or Stop was called; with kPause, for a short
  // time without looking at the listeners.
  enum class WaitFor : bool { kConnections, kPause };
  void Wait(WaitFor what);

  const ServerLimits limits_;
  const std::vector<UniqueFd> listeners_;
  const uint16_t port_;
  const int first_reserved_fd_;
  const UniqueFd stop_;  // an eventfd, which wakes the thread
  Handler handler_;      // does not change once the thread runs
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> out_of_descriptors_ = false;
  bool too_many_handshakes_ = false;  // used by the accepting thread only
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> evicted_ = 0;
  TimePoint next_log_;  // used by the accepting thread only
  mutable absl::Mutex mutex_;
  mutable OpenConnections open_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem
