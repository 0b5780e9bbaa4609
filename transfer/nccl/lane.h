#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transfer/nccl/channel_watch.h"
#include "transfer/nccl/context.h"
#include "transfer/nccl/operations.h"
#include "transfer/nccl/places.h"
#include "transfer/payload_lane.h"

namespace tandem {

// Payloads by NCCL: those of one Offer are copied into a slot and sent as one operation.
// Thread: the loop's.
class NcclLane final : public PayloadLane {
 public:
  // `context` and `watch` outlive it.
  NcclLane(NcclContext& context, NcclWatch& watch, NcclConnection connection);
  // What is under way is aborted, by the reaper.
  ~NcclLane() override;

  Room room() const override;
  absl::StatusOr<uint32_t> Offer(std::span<LanePayload> payloads) override;
  bool keeps_copies() const override { return true; }
  bool sending() const override { return !receives_ && !state_->operations.empty(); }
  absl::Status Expect(uint32_t bytes) override;
  bool arriving() const override { return state_->Arriving(); }
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const override;

  // Looks at what is under way. The first thing that went wrong, as of now: then the connection is
  // over.
  absl::Status Advance() { return state_->Advance(); }
  // The socket took less than it was given.
  void SocketIsFull(bool full);

 private:
  // Apart, since asking how far it has come moves it on.
  struct State {
    State(NcclContext& context_of_all, NcclWatch& watch_of_channel, NcclConnection connection);
    absl::Status Advance();
    bool Arriving();
    bool HasRoom();
    void UpdateWatch();

    NcclContext& context;
    NcclWatch& watch;
    NcclOperations operations;
    bool receiving = false;
    bool lacks_slot = false;  // all are taken: looks again with each tick
    bool socket_is_full = false;
  };

  const bool receives_;
  NcclPlaces places_;  // of what comes
  const std::unique_ptr<State> state_;
  uint32_t offered_ = 0;  // operations
};

}  // namespace tandem
