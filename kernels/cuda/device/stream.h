#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device.h"

namespace tandem::cuda {

// A pool of events that are free for reuse, since making one takes longer than recording it.
// Thread-safe.
class EventPool {
 public:
  EventPool() = default;
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();

  // An event of the calling thread's current device, which must be the same in every call.
  absl::StatusOr<cudaEvent_t> Take();
  void GiveBack(cudaEvent_t event);

 private:
  absl::Mutex mutex_;
  std::vector<cudaEvent_t> free_ ABSL_GUARDED_BY(mutex_);
};

// A stream that does not wait for the default stream, nor it for this one.
class CudaStream final : public Stream {
 public:
  // Takes ownership of `handle`.
  CudaStream(int device_index, cudaStream_t handle, std::shared_ptr<EventPool> events)
      : device_index_(device_index), handle_(handle), events_(std::move(events)) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override;

  absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src) override;
  absl::Status CopyAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes) override;
  absl::Status HashAll(std::span<const std::span<const std::byte>> extents,
                       std::span<uint64_t> hashes) override;
  absl::StatusOr<std::unique_ptr<Event>> Record() override;
  absl::Status Wait(const Event& event) override;
  absl::Status Synchronize() override;
  absl::Status BeginRecording() override;
  absl::StatusOr<std::unique_ptr<Graph>> EndRecording() override;
  absl::Status Launch(Graph& graph) override;
  void* native_handle() const override { return handle_; }

  cudaStream_t handle() const { return handle_; }
  bool recording() const { return recording_; }
  // Makes the stream's device the calling thread's current one, which launches need.
  absl::Status Enter() const;
  // Returns `status`. When it is an error, a recording that is under way fails with it at its end.
  absl::Status Note(absl::Status status);

 private:
  // Queues the copying or hashing of `count` extents, of which extent_at(i) gives the i-th.
  template <class ExtentAt>
  absl::Status QueueExtents(size_t count, const ExtentAt& extent_at, std::span<uint64_t> hashes);

  const int device_index_;
  const cudaStream_t handle_;
  const std::shared_ptr<EventPool> events_;
  bool recording_ = false;
  absl::Status recording_status_;
};

}  // namespace tandem::cuda
