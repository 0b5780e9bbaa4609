#include "transfer/media/nccl/channel.h"

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<NcclChannel>> NcclChannel::New(NcclContext& context, UniqueFd socket,
                                                              ChannelSide side) {
  ASSIGN_OR_RETURN(NcclWatch watch, NcclWatch::Open(socket.get()));
  // No descriptor tells when a communicator is ready or has taken too long.
  watch.Tick(true);
  return std::unique_ptr<NcclChannel>(
      new NcclChannel(context, std::move(socket), std::move(watch), side));
}

absl::StatusOr<bool> NcclChannel::Establish() {
  if (side_channel_) return true;
  watch_.TakeEvents();
  ASSIGN_OR_RETURN(const bool done, handshake_->Advance());
  if (!done) return false;
  LogInfo("nccl communicator ready epoch={}", handshake_->epoch());
  side_channel_.emplace(context_, watch_, handshake_->TakeConnection());
  handshake_.reset();
  return true;
}

absl::StatusOr<size_t> NcclChannel::Read(std::span<const iovec> parts) {
  TANDEM_CHECK(side_channel_.has_value(), "read before the connection was established");
  RETURN_IF_ERROR(side_channel_->Advance());
  return socket_.Read(parts);
}

absl::StatusOr<size_t> NcclChannel::Write(std::span<const iovec> parts) {
  TANDEM_CHECK(side_channel_.has_value(), "written before the connection was established");
  RETURN_IF_ERROR(side_channel_->Advance());
  const absl::StatusOr<size_t> count = socket_.Write(parts);
  side_channel_->SocketIsFull(socket_.wants_output());
  return count;
}

}  // namespace tandem
