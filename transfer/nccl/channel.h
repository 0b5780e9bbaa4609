#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "transfer/byte_channel.h"
#include "transfer/nccl/channel_watch.h"
#include "transfer/nccl/context.h"
#include "transfer/nccl/handshake.h"
#include "transfer/nccl/lane.h"
#include "transfer/socket_channel.h"

namespace tandem {

// A socket for the frames and a communicator for the payloads; they live and die together.
// Thread: the loop's.
class NcclChannel final : public ByteChannel {
 public:
  // RESOURCE_EXHAUSTED when the process has no descriptor left. `context` outlives the channel.
  static absl::StatusOr<std::unique_ptr<NcclChannel>> New(NcclContext& context, UniqueFd socket,
                                                          NcclSide side);

  int fd() const override { return watch_.fd(); }
  bool wants_output() const override { return false; }
  absl::StatusOr<bool> Establish() override;
  // Both say it when an operation of the lane has failed.
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override;
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override;
  PayloadLane* lane() override { return lane_ ? &*lane_ : nullptr; }

 private:
  NcclChannel(NcclContext& context, UniqueFd socket, NcclWatch watch, NcclSide side)
      : context_(context),
        socket_(std::move(socket)),
        watch_(std::move(watch)),
        handshake_(std::in_place, context, socket_, side) {}

  NcclContext& context_;
  SocketChannel socket_;
  NcclWatch watch_;
  std::optional<NcclHandshake> handshake_;  // until it is done
  std::optional<NcclLane> lane_;            // from then on
};

}  // namespace tandem
