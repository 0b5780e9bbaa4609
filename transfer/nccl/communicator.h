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
#include "transfer/nccl/nccl_library.h"
#include "transfer/nccl/slot_pool.h"

namespace tandem {

// One end of a non-blocking communicator of two ranks. NCCL works on what was begun on a thread of
// its own: until Poll says that it has, nothing else may be begun, nor queued on the stream.
// No call waits for the peer, but for the destructor. Errors are UNAVAILABLE with NCCL's words;
// after one only the destructor is called.
// Thread: one at a time.
class NcclCommunicator {
 public:
  // Begins to make it, of the device that is the calling thread's. `name` is for NCCL's logs.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Begin(
      std::shared_ptr<const NcclLibrary> nccl, const ncclUniqueId& id, int rank, std::string name);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  // Aborts: waits for NCCL, in the worst case for ever.
  ~NcclCommunicator();

  // Whether what was begun last, the communicator itself or an operation, is on its way.
  absl::StatusOr<bool> Poll();
  // To and from the other rank, which does the other half with as many bytes. Memory of the device.
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

// All that a communicator works with. Destroyed in this order: once the abort has returned nothing
// runs on the stream any more and the slots are nobody's.
struct NcclConnection {
  std::vector<NcclSlot> slots;
  std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<Event>> events;  // of the stream
  std::unique_ptr<NcclCommunicator> communicator;
};

}  // namespace tandem
