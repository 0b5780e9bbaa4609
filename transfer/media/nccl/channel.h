#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "transfer/media/nccl/channel_watch.h"
#include "transfer/media/nccl/context.h"
#include "transfer/media/nccl/handshake.h"
#include "transfer/media/nccl/side_channel.h"
#include "transfer/media/socket_channel.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// A socket for the frames and a communicator for the payloads, which live and die together.
// Thread: the loop's.
class NcclChannel final : public ByteChannel {
 public:
  // RESOURCE_EXHAUSTED when the process has no descriptor left. `context` outlives the channel.
  static absl::StatusOr<std::unique_ptr<NcclChannel>> New(NcclContext& context, UniqueFd socket,
                                                          ChannelSide side);

  int fd() const override { return watch_.fd(); }
  bool wants_output() const override { return false; }
  absl::StatusOr<bool> Establish() override;
  // Both also report an operation of the side channel that has failed.
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override;
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override;
  SideChannel* side_channel() override { return side_channel_ ? &*side_channel_ : nullptr; }

 private:
  NcclChannel(NcclContext& context, UniqueFd socket, NcclWatch watch, ChannelSide side)
      : context_(context),
        socket_(std::move(socket)),
        watch_(std::move(watch)),
        handshake_(std::in_place, context, socket_, side) {}

  NcclContext& context_;
  SocketChannel socket_;
  NcclWatch watch_;
  std::optional<NcclHandshake> handshake_;       // until it succeeds
  std::optional<NcclSideChannel> side_channel_;  // from then on
};

}  // namespace tandem
