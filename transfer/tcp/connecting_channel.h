#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "transfer/byte_channel.h"
#include "transfer/tcp/name_resolver.h"
#include "transfer/tcp/socket.h"

namespace tandem {

// The addresses of a peer, once they are known: what a connection waits for before it has a socket.
// Thread-safe.
class AwaitedAddresses {
 public:
  explicit AwaitedAddresses(UniqueFd event) : event_(std::move(event)) {}

  // Readable once Arrived was called.
  int fd() const { return event_.get(); }
  void Arrived(absl::StatusOr<std::vector<SocketAddress>> addresses);
  // Empty until then.
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> Take();

 private:
  const UniqueFd event_;
  absl::Mutex mutex_;
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> addresses_ ABSL_GUARDED_BY(mutex_);
};

// A TCP connection that this side makes: waits for the addresses of the peer, connects to the first
// that takes it, and is from then on what `opened` makes of the connected socket.
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
  size_t held_bytes() const override { return open_ == nullptr ? 0 : open_->held_bytes(); }
  ZeroCopyUse zero_copy() const override {
    return open_ == nullptr ? ZeroCopyUse() : open_->zero_copy();
  }
  PayloadLane* lane() override { return open_ == nullptr ? nullptr : open_->lane(); }

 private:
  absl::StatusOr<bool> TryNextAddress(absl::Status last_error);

  const Opened opened_;
  std::shared_ptr<AwaitedAddresses> awaited_;  // null once they are known
  std::vector<SocketAddress> addresses_;       // not tried yet, the next one last
  UniqueFd socket_;                            // while it connects
  std::unique_ptr<ByteChannel> open_;
};

// Begins to connect to `peer`, "host:port". INVALID_ARGUMENT quotes what is none, UNAVAILABLE when
// the process has no descriptor left or too many names wait.
absl::StatusOr<std::unique_ptr<ByteChannel>> ConnectByName(std::string_view peer,
                                                           NameResolver& resolver,
                                                           ConnectingChannel::Opened opened);

}  // namespace tandem
