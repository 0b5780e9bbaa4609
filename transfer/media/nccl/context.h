#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/framed/extent_stream.h"
#include "transfer/framed/slot_pool.h"
#include "transfer/media/nccl/communicator.h"
#include "transfer/media/nccl/nccl_options.h"
#include "transfer/media/nccl/reaper.h"

namespace tandem {

// What the connections of one medium share. Thread: the loop's, except where noted.
class NcclContext {
 public:
  // The most payloads of one operation. Each begins at a multiple of kPayloadAlignment in its slot.
  static constexpr size_t kMaxPayloads = 512;
  static constexpr size_t kPayloadAlignment = 128;
  // NCCL listens for the ranks of every id that it made until all have come. This many ids may exist
  // whose other rank never came.
  static constexpr uint64_t kMaxUnusedIds = 256;

  // As NcclMedium::Open.
  static absl::StatusOr<std::unique_ptr<NcclContext>> Open(Device& device,
                                                           const NcclOptions& options);

  const NcclOptions& options() const { return options_; }
  Device& device() { return device_; }
  const std::shared_ptr<const NcclLibrary>& nccl() const { return nccl_; }
  SlotPool& send_slots() { return *send_slots_; }
  SlotPool& receive_slots() { return *receive_slots_; }
  // For copies into send slots. It is separate from the streams of connections, so that a copy never
  // waits behind an operation of a peer.
  ExtentStream& copy_stream() { return *copy_stream_; }
  NcclReaper& reaper() { return reaper_; }
  const NcclReaper& reaper() const { return reaper_; }

  // The size of an operation with kMaxPayloads payloads of chunk_bytes together.
  size_t slot_bytes() const { return send_slots_->slot_bytes(); }
  // Memory that was set aside. Thread-safe.
  size_t buffer_bytes() const;

  // The id and the number of a new communicator. RESOURCE_EXHAUSTED after kMaxUnusedIds unused ids.
  absl::StatusOr<ncclUniqueId> NewId(uint64_t& epoch);
  void IdWasUsed() { ++used_ids_; }

 private:
  NcclContext(Device& device, const NcclOptions& options);

  Device& device_;
  const NcclOptions options_;
  std::shared_ptr<const NcclLibrary> nccl_;
  std::shared_ptr<SlotPool> send_slots_;
  std::shared_ptr<SlotPool> receive_slots_;
  std::optional<ExtentStream> copy_stream_;
  uint64_t made_ids_ = 0;
  uint64_t used_ids_ = 0;
  NcclReaper reaper_;
};

}  // namespace tandem
