#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/framed/slot_pool.h"

namespace tandem {

// The functions of NCCL that Tandem calls, loaded at run time from the shared library of this
// machine. That the library can be opened proves nothing about a GPU.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  uint32_t version = 0;  // 22809 is 2.28.9

  // Opens the first of `names` that exists; it stays open until the process ends. First it sets two
  // environment variables, unless they are set: NCCL's own listener (RAS) off, and its implicit
  // launch order on, which keeps communicators of one GPU from waiting for one another. So no other
  // thread may read the environment during this call. FAILED_PRECONDITION when no library exists,
  // or when it is too old or lacks a function.
  static absl::StatusOr<std::shared_ptr<const NcclLibrary>> Open(
      std::span<const char* const> names);

  // The status of an NCCL call's `result`: OK also for ncclInProgress, otherwise UNAVAILABLE with
  // NCCL's message and `what` was tried.
  absl::Status ToStatus(ncclResult_t result, std::string_view what) const;
};

// One end of a non-blocking communicator of two ranks. NCCL works on each call on a thread of its
// own. Until Poll returns true, no other call may begin and nothing may be queued on the stream.
// Only the destructor waits for the peer. Errors are UNAVAILABLE with NCCL's message; after an
// error only the destructor may be called.
// Thread: one at a time.
class NcclCommunicator {
 public:
  // Begins to make a communicator of the calling thread's current device. `name` is for NCCL's
  // logs.
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
  std::vector<MemorySlot> slots;
  std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<Event>> events;  // recorded on `stream`
  std::unique_ptr<NcclCommunicator> communicator;
};

}  // namespace tandem
