#include "transfer/media/nccl/nccl_medium.h"

#include <utility>

#include "base/status.h"
#include "transfer/media/nccl/channel.h"
#include "transfer/media/nccl/context.h"
#include "transfer/media/tcp/connecting_channel.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

// When this many connections wait for their abort, NCCL has stopped working.
constexpr size_t kMaxEnding = 64;

// A connection that could not be opened; Establish reports why.
class FailedChannel final : public ByteChannel {
 public:
  explicit FailedChannel(absl::Status status) : status_(std::move(status)) {}
  int fd() const override { return -1; }
  bool wants_output() const override { return false; }
  absl::StatusOr<bool> Establish() override { return status_; }
  absl::StatusOr<size_t> Read(std::span<const iovec>) override { return status_; }
  absl::StatusOr<size_t> Write(std::span<const iovec>) override { return status_; }

 private:
  const absl::Status status_;
};

class SocketNcclMedium final : public NcclMedium {
 public:
  SocketNcclMedium(std::string address, UniqueFd listener, std::unique_ptr<NcclContext> context)
      : address_(std::move(address)),
        listener_(std::move(listener)),
        context_(std::move(context)) {}

  std::string_view name() const override { return "nccl"; }
  std::string address() const override { return address_; }
  absl::Status MayReach(std::string_view peer) const override {
    return ParseHostPort(peer).status();
  }
  int listener_fd() const override { return listener_.get(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;
  bool has_side_channels() const override { return true; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override;
  size_t buffer_bytes() const override { return context_->buffer_bytes(); }
  absl::Status health() const override { return context_->reaper().health(); }

 private:
  absl::Status MayBegin() const;
  std::unique_ptr<ByteChannel> Connected(UniqueFd socket);

  const std::string address_;
  const UniqueFd listener_;
  const std::unique_ptr<NcclContext> context_;
  NameResolver resolver_;
};

absl::Status SocketNcclMedium::MayCarry(std::span<const std::byte> payload) const {
  const size_t most = context_->options().chunk_bytes;
  if (payload.size() <= most) return absl::OkStatus();
  return InvalidArgument("payload of {} bytes: NCCL operations have at most {}", payload.size(),
                         most);
}

absl::Status SocketNcclMedium::MayBegin() const {
  RETURN_IF_ERROR(health());
  if (context_->reaper().waiting() < kMaxEnding) return absl::OkStatus();
  return ResourceExhausted("{} NCCL connections are still being ended", kMaxEnding);
}

absl::StatusOr<std::unique_ptr<ByteChannel>> SocketNcclMedium::Accept() {
  while (true) {
    ASSIGN_OR_RETURN(UniqueFd socket, AcceptStream(listener_));
    if (!socket.valid()) return nullptr;
    if (!MayBegin().ok()) continue;  // closes the socket, which the peer sees
    return NcclChannel::New(*context_, std::move(socket), NcclSide::kAccepted);
  }
}

absl::StatusOr<std::unique_ptr<ByteChannel>> SocketNcclMedium::Connect(std::string_view peer) {
  RETURN_IF_ERROR(MayReach(peer));
  RETURN_IF_ERROR(MayBegin());
  if (context_->send_slots().slots() == 0) {
    return FailedPrecondition("this worker sends nothing by NCCL: it was given no slots for that");
  }
  return ConnectByName(peer, resolver_,
                       [this](UniqueFd socket) { return Connected(std::move(socket)); });
}

std::unique_ptr<ByteChannel> SocketNcclMedium::Connected(UniqueFd socket) {
  absl::StatusOr<std::unique_ptr<NcclChannel>> channel =
      NcclChannel::New(*context_, std::move(socket), NcclSide::kConnected);
  if (channel.ok()) return *std::move(channel);
  return std::make_unique<FailedChannel>(channel.status());
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclMedium>> NcclMedium::Open(Device& device,
                                                             const NcclOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<NcclContext> context, NcclContext::Open(device, options));
  ASSIGN_OR_RETURN(UniqueFd listener, Listen(options.listen_host, options.listen_port));
  std::string address =
      HostPortText(options.advertised_host.empty() ? options.listen_host : options.advertised_host,
                   LocalPort(listener));
  return std::make_unique<SocketNcclMedium>(std::move(address), std::move(listener),
                                            std::move(context));
}

}  // namespace tandem
