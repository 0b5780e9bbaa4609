#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"
#include "kernels/device.h"
#include "transfer/framed/extent_stream.h"
#include "transfer/framed/slot_pool.h"
#include "transfer/media/nccl/communicator.h"
#include "transfer/media/nccl/nccl_options.h"

namespace tandem {

// A thread that ends communicators one after the other, because an abort waits for NCCL. A
// communicator keeps what it uses until its abort has returned, because its kernels may still
// write. Thread-safe.
class NcclReaper {
 public:
  // An abort that takes longer than `patience` is assumed never to end.
  explicit NcclReaper(std::chrono::milliseconds patience);
  // Waits for the aborts, but at most for `patience`. After that it detaches the thread, which
  // keeps the connections that it holds.
  ~NcclReaper();

  void End(NcclConnection connection);

  // UNAVAILABLE while an abort takes too long; the process should then be restarted.
  absl::Status health() const;
  // The number of connections that have not ended yet.
  size_t waiting() const;

 private:
  // What the reaper shares with its thread, which may outlive it.
  struct State {
    mutable absl::Mutex mutex;
    MonotonicCondVar changed;
    std::deque<NcclConnection> connections ABSL_GUARDED_BY(mutex);
    TimePoint abort_began ABSL_GUARDED_BY(mutex) = kNoDeadline;  // kNoDeadline: none is under way
    bool stopping ABSL_GUARDED_BY(mutex) = false;
    bool stopped ABSL_GUARDED_BY(mutex) = false;
  };

  static void Run(const std::shared_ptr<State>& state);
  // Waits for a connection and takes it; empty when the thread is to stop.
  static std::optional<NcclConnection> TakeOne(State& state);

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

// What the connections of one medium share. Thread: the loop's, except where noted.
class NcclContext {
 public:
  // The alignment of an operation's payloads within its slot.
  static constexpr size_t kPayloadAlignment = 128;
  static size_t Align(size_t bytes) {
    return (bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
  }
  // The most ids that may exist whose second rank never came. NCCL goes on listening for the ranks
  // of every id that it made until all have come.
  static constexpr uint64_t kMaxUnusedIds = 256;

  // Loads NCCL and takes the memory of the slots from `device`. Errors as OpenNcclMedium.
  static absl::StatusOr<std::unique_ptr<NcclContext>> Open(Device& device,
                                                           const NcclOptions& options);

  const NcclOptions& options() const { return options_; }
  Device& device() { return device_; }
  const std::shared_ptr<const NcclLibrary>& nccl() const { return nccl_; }
  SlotPool& send_slots() { return *send_slots_; }
  SlotPool& receive_slots() { return *receive_slots_; }
  // The stream for copies into send slots. It is separate from the streams of connections, so that
  // a copy never waits behind an operation of a peer.
  ExtentStream& copy_stream() { return *copy_stream_; }
  NcclReaper& reaper() { return reaper_; }

  // The size of a slot, which has room for an operation of ExtentStream::kMaxExtents payloads that
  // have chunk_bytes together.
  size_t slot_bytes() const { return send_slots_->slot_bytes(); }
  // The size of all memory that this context has set aside. Thread-safe.
  size_t buffer_bytes() const;

  // Returns the id of a new communicator, and its number in `epoch`. RESOURCE_EXHAUSTED after
  // kMaxUnusedIds unused ids.
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
