#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/nccl/nccl_library.h"
#include "transfer/media/nccl/slot_pool.h"

namespace tandem {

// One end of a non-blocking communicator of two ranks. NCCL works on each call on a thread of its
// own. Until Poll says that the call is on its way, no other call may begin and nothing may be
// queued on the stream. Only the destructor waits for the peer. Errors are UNAVAILABLE with NCCL's
// words; after an error only the destructor may be called.
// Thread: one at a time.
class NcclCommunicator {
 public:
  // Begins to make a communicator of the calling thread's current device. `name` is for NCCL's logs.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Begin(
      std::shared_ptr<const NcclLibrary> nccl, const ncclUniqueId& id, int rank, std::string name);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  // Aborts the communicator and waits for NCCL, in the worst case for ever.
  ~NcclCommunicator();

  // Whether NCCL has finished the latest call: the communicator exists, or the operation is queued.
  absl::StatusOr<bool> Poll();
  // Send memory of the device to the other rank, or receive from it. The other rank makes the
  // opposite call with the same number of bytes.
  absl::Status Send(std::span<const std::byte> bytes, const Stream& stream);
  absl::Status Receive(std::span<std::byte> bytes, const Stream& stream);

 private:
  NcclCommunicator(std::shared_ptr<const NcclLibrary> nccl, int rank, std::string name)
      : nccl_(std::move(nccl)), rank_(rank), name_(std::move(name)) {}
  int peer() const { return 1 - rank_; }

  const std::shared_ptr<const NcclLibrary> nccl_;
  const int rank_;
  const std::string name_;  // NCCL keeps the pointer
  ncclComm_t handle_ = nullptr;
};

// Everything that a communicator uses. The members are destroyed from the last to the first: once
// the abort has returned, nothing runs on the stream any more and the slots are free.
struct NcclConnection {
  std::vector<NcclSlot> slots;
  std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<Event>> events;  // of the stream
  std::unique_ptr<NcclCommunicator> communicator;
};

}  // namespace tandem
