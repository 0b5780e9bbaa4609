#include "transfer/media/nccl/nccl_medium.h"

#include <utility>

#include "base/status.h"
#include "transfer/media/nccl/channel.h"
#include "transfer/media/nccl/context.h"
#include "transfer/media/socket_channel.h"

namespace tandem {
namespace {

// When this many connections wait for their abort, NCCL has stopped working.
constexpr size_t kMaxEnding = 64;

class SocketNcclMedium final : public NcclMedium {
 public:
  SocketNcclMedium(TcpListener listener, std::unique_ptr<NcclContext> context)
      : NcclMedium(std::move(listener)), context_(std::move(context)) {}

  std::string_view name() const override { return "nccl"; }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override {
    while (true) {
      ASSIGN_OR_RETURN(UniqueFd socket, AcceptSocket(listener_fd()));
      if (!socket.valid()) return nullptr;
      SetStreamOptions(socket);
      // Otherwise closes the socket, which the peer sees.
      if (MayBegin().ok()) return NewChannel(std::move(socket), ChannelSide::kAccepted);
    }
  }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override {
    RETURN_IF_ERROR(MayReach(peer));
    RETURN_IF_ERROR(MayBegin());
    if (context_->send_slots().num_slots() > 0) return NcclMedium::Connect(peer);
    return FailedPrecondition("this worker sends nothing by NCCL: it was given no slots for that");
  }
  bool has_side_channels() const override { return true; }
  absl::Status MayCarry(std::span<const std::byte> payload) const override {
    const size_t most = context_->options().chunk_bytes;
    if (payload.size() <= most) return absl::OkStatus();
    return InvalidArgument("payload of {} bytes: NCCL operations have at most {}", payload.size(),
                           most);
  }
  size_t buffer_bytes() const override { return context_->buffer_bytes(); }
  absl::Status health() const override { return context_->reaper().health(); }

 private:
  absl::Status MayBegin() const {
    RETURN_IF_ERROR(health());
    if (context_->reaper().waiting() < kMaxEnding) return absl::OkStatus();
    return ResourceExhausted("{} NCCL connections are still being ended", kMaxEnding);
  }
  absl::StatusOr<std::unique_ptr<ByteChannel>> NewChannel(UniqueFd socket,
                                                          ChannelSide side) override {
    return NcclChannel::New(*context_, std::move(socket), side);
  }

  const std::unique_ptr<NcclContext> context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclMedium>> NcclMedium::Open(Device& device,
                                                             const NcclOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<NcclContext> context, NcclContext::Open(device, options));
  ASSIGN_OR_RETURN(TcpListener listener, TcpListener::Open(options.listen_host, options.listen_port,
                                                           options.advertised_host));
  return std::make_unique<SocketNcclMedium>(std::move(listener), std::move(context));
}

}  // namespace tandem
