#include "transfer/framed/staged_landings.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {

StagedLandings::StagedLandings(std::unique_ptr<StagingPool> pool, FrameReceiver& receiver)
    : pool_(std::move(pool)), receiver_(receiver) {
  queued_.reserve(pool_->num_slots());
}

absl::StatusOr<StagedSlot> StagedLandings::Take() {
  if (pool_->num_free() == 0) RETURN_IF_ERROR(Flush());
  return pool_->Take();
}

void StagedLandings::Queue(const FrameHeader& header, StagedSlot slot, std::span<std::byte> place) {
  TANDEM_CHECK(place.size() == header.payload_bytes, "a landing place of another size");
  if (copied_.ok()) copied_ = pool_->Copy(place, slot.bytes().first(header.payload_bytes));
  queued_.push_back({.header = header, .slot = std::move(slot)});
}

absl::Status StagedLandings::Flush() {
  if (queued_.empty()) return absl::OkStatus();
  const absl::Status done = pool_->Synchronize();
  const absl::Status queued = std::exchange(copied_, absl::OkStatus());
  const absl::Status& status = queued.ok() ? done : queued;
  for (const Queued& landing : queued_) receiver_.Landed(landing.header, status);
  queued_.clear();
  return status;
}

}  // namespace tandem
