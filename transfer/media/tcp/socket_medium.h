#pragma once

#include <functional>
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

// A TCP connection that this side makes. It waits for the addresses of the peer, connects to the
// first that accepts, and then delegates to the channel that `opened` makes of the socket.
// Thread: the loop's.
class ConnectingChannel final : public ByteChannel {
 public:
  using Opened = std::function<absl::StatusOr<std::unique_ptr<ByteChannel>>(UniqueFd socket)>;

  ConnectingChannel(std::shared_ptr<AwaitedAddresses> awaited, Opened opened)
      : opened_(std::move(opened)), awaited_(std::move(awaited)) {}

  int fd() const override;
  bool wants_output() const override;
  absl::StatusOr<bool> Establish() override;
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override { return open_->Read(parts); }
  size_t read_ahead_bytes() const override {
    return open_ == nullptr ? 0 : open_->read_ahead_bytes();
  }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
    return open_->Write(parts);
  }
  SideChannel* side_channel() override {
    return open_ == nullptr ? nullptr : open_->side_channel();
  }

 private:
  absl::StatusOr<bool> TryNextAddress(absl::Status last_error);

  const Opened opened_;
  std::shared_ptr<AwaitedAddresses> awaited_;  // null once the addresses are known
  std::vector<SocketAddress> addresses_;       // not tried yet, the next one last
  UniqueFd socket_;                            // valid while it connects
  std::unique_ptr<ByteChannel> open_;
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
