#include "transfer/media/tcp/connecting_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/status.h"

namespace tandem {

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

int ConnectingChannel::fd() const {
  if (open_ != nullptr) return open_->fd();
  return socket_.valid() ? socket_.get() : awaited_->fd();
}

bool ConnectingChannel::wants_output() const {
  return open_ != nullptr ? open_->wants_output() : socket_.valid();
}

absl::StatusOr<bool> ConnectingChannel::Establish() {
  if (open_ != nullptr) return open_->Establish();
  if (!socket_.valid()) {
    auto addresses = awaited_->Take();
    if (!addresses) return false;
    ASSIGN_OR_RETURN(addresses_, *std::move(addresses));
    std::reverse(addresses_.begin(), addresses_.end());
    // The event is closed after the socket was opened, so that fd() changes its number.
    const auto started = TryNextAddress(Unavailable("no address"));
    awaited_.reset();
    return started;
  }
  const absl::StatusOr<bool> connected = IsConnected(socket_);
  if (!connected.ok()) return TryNextAddress(connected.status());
  if (!*connected) return false;
  open_ = opened_(std::move(socket_));
  return open_->Establish();
}

absl::StatusOr<bool> ConnectingChannel::TryNextAddress(absl::Status last_error) {
  while (!addresses_.empty()) {
    auto started = StartConnect(addresses_.back());
    addresses_.pop_back();
    if (started.ok()) {
      // The old socket is closed after the new one was opened, so that fd() changes its number.
      socket_ = *std::move(started);
      return false;
    }
    last_error = started.status();
  }
  return last_error;
}

absl::StatusOr<std::unique_ptr<ByteChannel>> ConnectByName(std::string_view peer,
                                                           NameResolver& resolver,
                                                           ConnectingChannel::Opened opened) {
  ASSIGN_OR_RETURN(HostPort host_port, ParseHostPort(peer));
  UniqueFd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return Unavailable("cannot connect: {}", ErrnoMessage(errno));
  auto awaited = std::make_shared<AwaitedAddresses>(std::move(event));
  auto addresses = Resolve(host_port, NameLookup::kNumericOnly);
  if (addresses.ok()) {
    awaited->Arrived(std::move(addresses));
  } else if (!resolver.Resolve(std::move(host_port), [awaited](auto resolved) {
               awaited->Arrived(std::move(resolved));
             })) {
    return Unavailable("cannot connect: too many host names wait to be resolved");
  }
  return std::make_unique<ConnectingChannel>(std::move(awaited), std::move(opened));
}

}  // namespace tandem
