#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/bounded_queue.h"
#include "transfer/media/medium.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {

// Hands the resolved addresses of a peer to the connection that waits for them. Thread-safe.
class AwaitedAddresses {
 public:
  explicit AwaitedAddresses(UniqueFd event) : event_(std::move(event)) {}

  // The descriptor that becomes readable when the addresses have arrived.
  int fd() const { return event_.get(); }
  void Arrived(absl::StatusOr<std::vector<SocketAddress>> addresses);
  // Takes the addresses or the error of the lookup; empty before they have arrived.
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> Take();

 private:
  const UniqueFd event_;
  absl::Mutex mutex_;
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> addresses_ ABSL_GUARDED_BY(mutex_);
};

// Looks up host names on a thread of its own, because the system's resolver blocks, for seconds
// when a name server is gone. The first name starts the thread; numeric addresses need no lookup.
// Thread: one thread calls Resolve.
class NameResolver {
 public:
  NameResolver() = default;
  ~NameResolver();  // waits for the lookup in progress

  // Begins to look up the peer's host. UNAVAILABLE when the process has no descriptor left or too
  // many names wait to be resolved.
  absl::StatusOr<std::shared_ptr<AwaitedAddresses>> Resolve(const HostPort& peer);

 private:
  struct Question {
    HostPort peer;
    std::shared_ptr<AwaitedAddresses> answer;
  };

  void Run();

  BoundedQueue<Question> questions_{256};
  std::thread thread_;
};

// A listening TCP socket, and the "host:port" at which peers find it.
struct TcpListener {
  std::string address;
  UniqueFd socket;

  // Listens on `host` and `port`; port 0 lets the system choose. The address names
  // `advertised_host`, or `host` if that is empty. UNAVAILABLE names the address at which the
  // process cannot listen.
  static absl::StatusOr<TcpListener> Open(const std::string& host, uint16_t port,
                                          const std::string& advertised_host);
};

// A medium whose connections begin as TCP sockets. The media that derive from it differ in the
// channel that they make of a socket.
class SocketMedium : public Medium {
 public:
  std::string address() const override { return listener_.address; }
  absl::Status MayReach(std::string_view peer) const override {
    return ParseHostPort(peer).status();
  }
  int listener_fd() const override { return listener_.socket.get(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  // Begins to connect to `peer`. INVALID_ARGUMENT quotes a malformed address, UNAVAILABLE means
  // that the process has no descriptor left or too many names wait to be resolved.
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;

 protected:
  explicit SocketMedium(TcpListener listener) : listener_(std::move(listener)) {}

  virtual absl::StatusOr<std::unique_ptr<ByteChannel>> NewChannel(UniqueFd socket,
                                                                  ChannelSide side) = 0;

 private:
  const TcpListener listener_;
  NameResolver resolver_;
};

}  // namespace tandem
