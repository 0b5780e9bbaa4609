#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transfer/framed/staging.h"
#include "transfer/transport.h"

namespace tandem {

// Payloads that have come whole, lie in slots, and are being copied to their places in the memory of a
// device. The receiver is told of a payload when its copy is done; Flush waits for all of them.
// Thread: the loop's.
class StagedLandings {
 public:
  // `receiver` outlives this object.
  StagedLandings(std::unique_ptr<StagingPool> pool, FrameReceiver& receiver);

  const StagingPool& pool() const { return *pool_; }
  bool empty() const { return queued_.empty(); }

  // A slot to read a payload into. Flushes when none is free; empty when all slots hold payloads of
  // which only part has come. Errors as Flush.
  absl::StatusOr<StagedSlot> Take();
  // The payload is whole and its hash is right. `place` is as long as the payload.
  void Queue(const FrameHeader& header, StagedSlot slot, std::span<std::byte> place);
  // Tells the receiver of all queued payloads. UNAVAILABLE when a copy failed: then none of them has
  // landed.
  absl::Status Flush();

 private:
  struct Queued {
    FrameHeader header;
    StagedSlot slot;
  };

  const std::unique_ptr<StagingPool> pool_;
  FrameReceiver& receiver_;
  std::vector<Queued> queued_;
  absl::Status copied_;  // of queueing the copies
};

}  // namespace tandem
