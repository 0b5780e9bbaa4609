#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transfer/media/nccl/channel_watch.h"
#include "transfer/media/nccl/context.h"
#include "transfer/media/nccl/operations.h"
#include "transfer/media/nccl/received_payloads.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// Moves payloads with NCCL: those of one Offer are copied into a slot and sent as one operation.
// Thread: the loop's.
class NcclSideChannel final : public SideChannel {
 public:
  // `context` and `watch` outlive the side channel.
  NcclSideChannel(NcclContext& context, NcclWatch& watch, NcclConnection connection);
  // Hands what is under way to the reaper, which aborts it.
  ~NcclSideChannel() override;

  Room room(uint64_t in_flight) override;
  absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) override;
  bool keeps_copies() const override { return true; }
  bool sending() const override { return !receives_ && !operations_.empty(); }
  absl::Status Expect(uint32_t bytes) override;
  bool arriving() override;
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const override;

  // Advances what is under way. Returns the first error so far, after which the connection is over.
  absl::Status Advance();
  // Tells the side channel whether the socket took less than it was given.
  void SocketIsFull(bool full);

 private:
  void UpdateWatch();

  NcclContext& context_;
  NcclWatch& watch_;
  const bool receives_;
  NcclReceivedPayloads payloads_;  // those of operations that arrive
  NcclOperations operations_;
  uint32_t offered_ = 0;  // the number of operations so far
  bool receiving_ = false;
  bool lacks_slot_ = false;  // all slots are taken; each tick looks again
  bool socket_is_full_ = false;
};

}  // namespace tandem
