#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/framed/slot_pool.h"

namespace tandem {

// Page-locked memory through which payloads in the memory of a device get to the wire and back:
// slots of equal size, in whole pages, and the stream that copies from and into them. All is set
// aside at the start. Thread: one at a time, the loop's once that runs.
class StagingPool {
 public:
  // Sets the memory aside. INVALID_ARGUMENT if `total_bytes` hold fewer than two payloads;
  // RESOURCE_EXHAUSTED if the device has not enough page-locked memory.
  static absl::StatusOr<std::unique_ptr<StagingPool>> Create(Device& device, size_t payload_bytes,
                                                             size_t total_bytes);

  size_t payload_bytes() const { return payload_bytes_; }  // the largest payload of a slot
  SlotPool& slots() const { return *slots_; }

  // Queues a copy, one side of which is a slot. Both sides must stay as they are until Synchronize
  // returned.
  absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src);
  // Waits for the queued copies. Once it has returned, the copies read and write nothing any more,
  // even if one has failed.
  absl::Status Synchronize();

 private:
  StagingPool(std::string device, size_t payload_bytes, std::shared_ptr<SlotPool> slots,
              std::unique_ptr<Stream> stream)
      : device_(std::move(device)),
        payload_bytes_(payload_bytes),
        slots_(std::move(slots)),
        stream_(std::move(stream)) {}

  absl::Status Failed(const absl::Status& status) const;

  const std::string device_;  // the device's name
  const size_t payload_bytes_;
  const std::shared_ptr<SlotPool> slots_;
  const std::unique_ptr<Stream> stream_;
};

// The slots that the connections of a transport share for sending, and the order in which they get
// them. A connection gets a slot only while it holds fewer than are free, so that a connection whose
// peer does not read leaves some to others.
//
// A connection that asks for a slot
//   gets one   if more are free than it holds, and it has the turn or no connection waits;
//   waits      otherwise, if it holds none: the loop gives it a turn once a slot is free;
//   goes on    otherwise, with the slots that it holds, and asks again when it has sent them.
// No connection gets a slot before one that has waited longer.
// Thread: the loop's.
class OutboundStaging {
 public:
  explicit OutboundStaging(std::unique_ptr<StagingPool> pool) : pool_(std::move(pool)) {}

  StagingPool& pool() const { return *pool_; }

  // A slot for the connection `id`, which holds `held` slots; may be empty.
  MemorySlot Take(uint64_t id, size_t held);
  // Removes a connection that was closed from those that wait.
  void Forget(uint64_t id) { std::erase(waiting_, id); }

  // Whether a connection waits and a slot is free.
  bool has_turn() const { return !waiting_.empty() && pool_->slots().num_free() > 0; }
  // The connection that has the turn until EndTurn and waits no more; empty when there is none.
  std::optional<uint64_t> BeginTurn();
  void EndTurn() { turn_.reset(); }

 private:
  const std::unique_ptr<StagingPool> pool_;
  std::deque<uint64_t> waiting_;  // ids of connections, in the order in which they came
  std::optional<uint64_t> turn_;
};

}  // namespace tandem
