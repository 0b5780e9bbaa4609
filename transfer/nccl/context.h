#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/extent_stream.h"
#include "transfer/nccl/nccl_library.h"
#include "transfer/nccl/nccl_medium.h"
#include "transfer/nccl/reaper.h"
#include "transfer/nccl/slot_pool.h"

namespace tandem {

// What the connections of one medium share.
// Thread: the loop's, but for what says otherwise itself.
class NcclContext {
 public:
  // Payloads of one operation. Each begins at a multiple of kPlaceBytes of its slot.
  static constexpr size_t kMaxPayloads = 512;
  static constexpr size_t kPlaceBytes = 128;
  // NCCL listens for the ranks of every id that it gave until all have come: of ids for which they
  // never came there may be so many.
  static constexpr uint64_t kMaxUnusedIds = 256;

  // As NcclMedium::Open.
  static absl::StatusOr<std::unique_ptr<NcclContext>> Open(Device& device,
                                                           const NcclOptions& options);

  const NcclOptions& options() const { return options_; }
  Device& device() { return device_; }
  const std::shared_ptr<const NcclLibrary>& nccl() const { return nccl_; }
  NcclSlotPool& send_slots() { return *send_slots_; }
  NcclSlotPool& receive_slots() { return *receive_slots_; }
  // For copies into the slots, which nothing of a peer may be before.
  ExtentStream& copy_stream() { return *copy_stream_; }
  NcclReaper& reaper() { return reaper_; }
  const NcclReaper& reaper() const { return reaper_; }

  // Of an operation with kMaxPayloads payloads and chunk_bytes.
  size_t slot_bytes() const { return send_slots_->slot_bytes(); }
  // What was set aside. Thread-safe.
  size_t buffer_bytes() const;

  // A new communicator's id and number. RESOURCE_EXHAUSTED after too many that were not used.
  absl::StatusOr<ncclUniqueId> NewId(uint64_t& epoch);
  void IdWasUsed() { ++used_ids_; }

 private:
  NcclContext(Device& device, const NcclOptions& options);

  Device& device_;
  const NcclOptions options_;
  std::shared_ptr<const NcclLibrary> nccl_;
  std::shared_ptr<NcclSlotPool> send_slots_;
  std::shared_ptr<NcclSlotPool> receive_slots_;
  std::optional<ExtentStream> copy_stream_;
  uint64_t made_ids_ = 0;
  uint64_t used_ids_ = 0;
  NcclReaper reaper_;
};

}  // namespace tandem
