#include "transfer/media/tcp/socket_medium.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/status.h"
#include "base/thread_name.h"
#include "transfer/media/socket_channel.h"

namespace tandem {
namespace {

// A TCP connection that this side makes. It waits for the addresses of the peer, connects to the
// first that accepts, and then delegates to the channel that `opened` makes of the socket.
// Thread: the loop's.
class ConnectingChannel final : public ByteChannel {
 public:
  using Opened = std::function<absl::StatusOr<std::unique_ptr<ByteChannel>>(UniqueFd socket)>;

  ConnectingChannel(std::shared_ptr<AwaitedAddresses> awaited, Opened opened)
      : opened_(std::move(opened)), awaited_(std::move(awaited)) {}

  int fd() const override {
    if (open_ != nullptr) return open_->fd();
    if (socket_.valid()) return socket_.get();
    return awaited_ != nullptr ? awaited_->fd() : -1;
  }
  bool wants_output() const override {
    return open_ != nullptr ? open_->wants_output() : socket_.valid();
  }
  absl::StatusOr<bool> Establish() override {
    if (open_ != nullptr) return open_->Establish();
    if (!socket_.valid()) {
      auto addresses = awaited_->Take();
      if (!addresses) return false;
      ASSIGN_OR_RETURN(addresses_, *std::move(addresses));
      std::reverse(addresses_.begin(), addresses_.end());
      // The descriptor for the name lookup is closed only after the socket was opened, so that fd()
      // returns a new number.
      const auto started = TryNextAddress(Unavailable("no address"));
      awaited_.reset();
      return started;
    }
    const absl::StatusOr<bool> connected = IsConnected(socket_);
    if (!connected.ok()) return TryNextAddress(connected.status());
    if (!*connected) return false;
    ASSIGN_OR_RETURN(open_, opened_(std::move(socket_)));
    return open_->Establish();
  }
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
  absl::StatusOr<bool> TryNextAddress(absl::Status last_error) {
    while (!addresses_.empty()) {
      auto started = StartConnect(addresses_.back());
      addresses_.pop_back();
      if (started.ok()) {
        // The old socket is closed only after the new one was opened, so that fd() returns a new
        // number.
        socket_ = *std::move(started);
        return false;
      }
      last_error = started.status();
    }
    return last_error;
  }

  const Opened opened_;
  std::shared_ptr<AwaitedAddresses> awaited_;  // null once the addresses are known
  std::vector<SocketAddress> addresses_;       // not tried yet, the next one last
  UniqueFd socket_;                            // valid while it connects
  std::unique_ptr<ByteChannel> open_;
};

}  // namespace

void AwaitedAddresses::Arrived(absl::StatusOr<std::vector<SocketAddress>> addresses) {
  {
    absl::MutexLock lock(&mutex_);
    addresses_ = std::move(addresses);
  }
  const uint64_t one = 1;
  // The first write to an eventfd cannot fail.
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
}

std::optional<absl::StatusOr<std::vector<SocketAddress>>> AwaitedAddresses::Take() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(addresses_, std::nullopt);
}

NameResolver::~NameResolver() {
  questions_.Close();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::shared_ptr<AwaitedAddresses>> NameResolver::Resolve(const HostPort& peer) {
  UniqueFd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return Unavailable("cannot connect: {}", ErrnoMessage(errno));
  auto answer = std::make_shared<AwaitedAddresses>(std::move(event));
  auto numeric = tandem::Resolve(peer, NameLookup::kNumericOnly);
  if (numeric.ok()) {
    answer->Arrived(std::move(numeric));
    return answer;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  if (questions_.TryPush({.peer = peer, .answer = answer})) return answer;
  return Unavailable("cannot connect: too many host names wait to be resolved");
}

void NameResolver::Run() {
  NameThisThread("kv-names");
  while (!questions_.closed()) {
    for (const Question& question : questions_.WaitAndDrain(kNoDeadline)) {
      if (questions_.closed()) return;
      question.answer->Arrived(tandem::Resolve(question.peer, NameLookup::kByName));
    }
  }
}

absl::StatusOr<TcpListener> TcpListener::Open(const std::string& host, uint16_t port,
                                              const std::string& advertised_host) {
  ASSIGN_OR_RETURN(UniqueFd socket, Listen(host, port));
  const std::string& named = advertised_host.empty() ? host : advertised_host;
  std::string address = HostPortText(named, LocalPort(socket));
  return TcpListener{.address = std::move(address), .socket = std::move(socket)};
}

absl::StatusOr<std::unique_ptr<ByteChannel>> SocketMedium::Accept() {
  ASSIGN_OR_RETURN(UniqueFd socket, AcceptSocket(listener_fd()));
  if (!socket.valid()) return nullptr;
  SetStreamOptions(socket);
  return NewChannel(std::move(socket), ChannelSide::kAccepted);
}

absl::StatusOr<std::unique_ptr<ByteChannel>> SocketMedium::Connect(std::string_view peer) {
  ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(peer));
  ASSIGN_OR_RETURN(std::shared_ptr<AwaitedAddresses> addresses, resolver_.Resolve(host_port));
  return std::make_unique<ConnectingChannel>(std::move(addresses), [this](UniqueFd socket) {
    return NewChannel(std::move(socket), ChannelSide::kConnected);
  });
}

}  // namespace tandem
