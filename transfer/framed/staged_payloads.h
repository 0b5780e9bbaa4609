#pragma once

#include <memory>
#include <vector>

#include "kernels/device.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/staging.h"
#include "transfer/transport.h"

namespace tandem {

// Payloads that have come whole, lie in slots, and are being copied to their places in the memory
// of a device. A payload is reported to the receiver when its copy is done; Flush waits for all of
// them. Thread: the loop's.
class StagedLandings {
 public:
  // `receiver` outlives this object.
  StagedLandings(std::unique_ptr<StagingPool> pool, FrameReceiver& receiver)
      : pool_(std::move(pool)), receiver_(receiver) {}

  const StagingPool& pool() const { return *pool_; }
  bool empty() const { return queued_.empty(); }

  // A slot to read a payload into. Flushes when none is free; empty when all slots hold payloads of
  // which only part has come. Errors as Flush.
  absl::StatusOr<MemorySlot> Take();
  // Queues the copy of a payload from its slot to `place`, which is as long. The payload is whole
  // and its hash is right.
  void Queue(const FrameHeader& header, MemorySlot slot, std::span<std::byte> place);
  // Waits for the queued copies and tells the receiver of them. UNAVAILABLE when a copy failed:
  // then none of them has landed.
  absl::Status Flush();

 private:
  struct Queued {
    FrameHeader header;
    MemorySlot slot;
  };

  const std::unique_ptr<StagingPool> pool_;
  FrameReceiver& receiver_;
  std::vector<Queued> queued_;  // never more than there are slots
  absl::Status copied_;         // the error of queueing the copies, if any
};

// Makes the path for payloads that lie in the memory of a device. They pass through page-locked
// memory, which is set aside now: a slot for each payload on its way. `receiver` is null on a worker
// that only sends; it and `device` outlive the path. Errors as StagingPool::Create.
absl::StatusOr<std::unique_ptr<PayloadPath>> NewStagedPayloads(Device& device, size_t payload_bytes,
                                                               size_t total_bytes,
                                                               FrameReceiver* receiver);

}  // namespace tandem
