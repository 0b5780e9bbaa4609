#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "transfer/media/tcp/name_resolver.h"
#include "transfer/media/tcp/socket.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// Hands the resolved addresses of a peer to the connection that waits for them. Thread-safe.
class AwaitedAddresses {
 public:
  explicit AwaitedAddresses(UniqueFd event) : event_(std::move(event)) {}

  // Readable after Arrived.
  int fd() const { return event_.get(); }
  void Arrived(absl::StatusOr<std::vector<SocketAddress>> addresses);
  // Empty before Arrived.
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> Take();

 private:
  const UniqueFd event_;
  absl::Mutex mutex_;
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> addresses_ ABSL_GUARDED_BY(mutex_);
};

// A TCP connection that this side makes. It waits for the addresses of the peer, connects to the
// first that accepts, and then delegates to the channel that `opened` makes of the socket.
// Thread: the loop's.
class ConnectingChannel final : public ByteChannel {
 public:
  using Opened = std::function<std::unique_ptr<ByteChannel>(UniqueFd socket)>;

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

// Begins to connect to `peer`, "host:port". INVALID_ARGUMENT quotes a malformed address, UNAVAILABLE
// means that the process has no descriptor left or too many names wait to be resolved.
absl::StatusOr<std::unique_ptr<ByteChannel>> ConnectByName(std::string_view peer,
                                                           NameResolver& resolver,
                                                           ConnectingChannel::Opened opened);

}  // namespace tandem
