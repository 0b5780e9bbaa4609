#include "transfer/media/nccl/nccl_medium.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "transfer/media/nccl/channel_watch.h"
#include "transfer/media/nccl/context.h"
#include "transfer/media/nccl/handshake.h"
#include "transfer/media/nccl/side_channel.h"
#include "transfer/media/socket_channel.h"
#include "transfer/media/tcp/socket_medium.h"

namespace tandem {
namespace {

// The number of connections waiting for their abort at which NCCL is taken to have stopped working.
constexpr size_t kMaxEnding = 64;

// A socket for the frames and a communicator for the payloads, which live and die together.
// Thread: the loop's.
class NcclChannel final : public ByteChannel {
 public:
  // `context` outlives the channel.
  NcclChannel(NcclContext& context, UniqueFd socket, NcclWatch watch, ChannelSide side)
      : context_(context),
        socket_(std::move(socket)),
        watch_(std::move(watch)),
        handshake_(std::in_place, context, socket_, side) {
    // No descriptor tells when a communicator is ready or has taken too long, so a timer ticks.
    watch_.Tick(true);
  }

  int fd() const override { return watch_.fd(); }
  bool wants_output() const override { return false; }
  SideChannel* side_channel() override { return side_channel_ ? &*side_channel_ : nullptr; }

  absl::StatusOr<bool> Establish() override {
    if (side_channel_) return true;
    watch_.TakeEvents();
    ASSIGN_OR_RETURN(const bool done, handshake_->Advance());
    if (!done) return false;
    LogInfo("nccl communicator ready epoch={}", handshake_->epoch());
    side_channel_.emplace(context_, watch_, handshake_->TakeConnection());
    handshake_.reset();
    return true;
  }

  // Read and Write also report an operation of the side channel that has failed.
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override {
    TANDEM_CHECK(side_channel_.has_value(), "read before the connection was established");
    RETURN_IF_ERROR(side_channel_->Advance());
    return socket_.Read(parts);
  }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
    TANDEM_CHECK(side_channel_.has_value(), "written before the connection was established");
    RETURN_IF_ERROR(side_channel_->Advance());
    const absl::StatusOr<size_t> count = socket_.Write(parts);
    side_channel_->SocketIsFull(socket_.wants_output());
    return count;
  }

 private:
  NcclContext& context_;
  SocketChannel socket_;
  NcclWatch watch_;
  std::optional<NcclHandshake> handshake_;       // set until the handshake succeeds
  std::optional<NcclSideChannel> side_channel_;  // set once the handshake has succeeded
};

class NcclMedium final : public SocketMedium {
 public:
  NcclMedium(TcpListener listener, std::unique_ptr<NcclContext> context)
      : SocketMedium(std::move(listener)), context_(std::move(context)) {}

  std::string_view name() const override { return "nccl"; }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override {
    while (true) {
      ASSIGN_OR_RETURN(UniqueFd socket, AcceptSocket(listener_fd()));
      if (!socket.valid()) return nullptr;
      SetStreamOptions(socket);
      // If no connection may begin now, the socket is closed, which the peer sees.
      if (MayBegin().ok()) return NewChannel(std::move(socket), ChannelSide::kAccepted);
    }
  }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override {
    RETURN_IF_ERROR(MayReach(peer));
    RETURN_IF_ERROR(MayBegin());
    if (context_->send_slots().num_slots() > 0) return SocketMedium::Connect(peer);
    return FailedPrecondition("this worker sends nothing by NCCL: it was given no slots for that");
  }
  bool has_side_channels() const override { return true; }
  bool carries_any_memory() const override { return false; }
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
    ASSIGN_OR_RETURN(NcclWatch watch, NcclWatch::Open(socket.get()));
    return std::make_unique<NcclChannel>(*context_, std::move(socket), std::move(watch), side);
  }

  const std::unique_ptr<NcclContext> context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Medium>> OpenNcclMedium(Device& device, const NcclOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<NcclContext> context, NcclContext::Open(device, options));
  ASSIGN_OR_RETURN(TcpListener listener, TcpListener::Open(options.listen_host, options.listen_port,
                                                           options.advertised_host));
  return std::make_unique<NcclMedium>(std::move(listener), std::move(context));
}

}  // namespace tandem
