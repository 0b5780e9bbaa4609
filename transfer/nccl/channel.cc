#include "transfer/nccl/channel.h"

#include "base/check.h"
#include "base/status.h"
#include "spdlog/spdlog.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<NcclChannel>> NcclChannel::New(NcclContext& context, UniqueFd socket,
                                                              NcclSide side) {
  ASSIGN_OR_RETURN(NcclWatch watch, NcclWatch::Open(socket.get()));
  // A communicator that is being made, and the time that it may take, show in no descriptor.
  watch.Tick(true);
  return std::unique_ptr<NcclChannel>(
      new NcclChannel(context, std::move(socket), std::move(watch), side));
}

absl::StatusOr<bool> NcclChannel::Establish() {
  if (lane_) return true;
  watch_.TakeEvents();
  ASSIGN_OR_RETURN(const bool done, handshake_->Advance());
  if (!done) return false;
  spdlog::info("nccl communicator ready epoch={}", handshake_->epoch());
  lane_.emplace(context_, watch_, handshake_->TakeConnection());
  handshake_.reset();
  return true;
}

absl::StatusOr<size_t> NcclChannel::Read(std::span<const iovec> parts) {
  TANDEM_CHECK(lane_.has_value(), "read before the connection was established");
  RETURN_IF_ERROR(lane_->Advance());
  return socket_.Read(parts);
}

absl::StatusOr<size_t> NcclChannel::Write(std::span<const iovec> parts) {
  TANDEM_CHECK(lane_.has_value(), "written before the connection was established");
  RETURN_IF_ERROR(lane_->Advance());
  const absl::StatusOr<size_t> count = socket_.Write(parts);
  lane_->SocketIsFull(socket_.wants_output());
  return count;
}

}  // namespace tandem
