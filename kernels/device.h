#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Memory of one device, or host memory that its streams reach, freed by its destructor. Move-only.
// CPU: anonymous pages, 2 MiB aligned and advised huge when 2 MiB or larger, zero until written.
class DeviceBuffer {
 public:
  using Free = void (*)(std::byte* data, size_t size);

  DeviceBuffer() = default;
  DeviceBuffer(std::byte* data, size_t size, Free free) : data_(data), size_(size), free_(free) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(free_, other.free_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) free_(data_, size_);
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Free free_ = nullptr;
};

// A point in a Stream. Done() never blocks.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool Done() const = 0;
  virtual absl::Status Synchronize() = 0;
};

// Work of a stream that was recorded instead of run, to be queued again as a whole. What it reads
// and writes must stay where it was.
class Graph {
 public:
  virtual ~Graph() = default;
};

// An in-order queue of one device. The CPU's runs inline: a call returns when its work is done.
// Thread: one at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // Either side may be memory of the device or of the host. Host memory that AllocateHost did not
  // give is copied by way of the driver's own buffers: the call may wait, so no step does that.
  virtual absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> Record() = 0;
  // What is queued from here on runs after `event`, which may be of another stream of the device.
  virtual absl::Status Wait(const Event& event) = 0;
  virtual absl::Status Synchronize() = 0;

  // Between the two nothing runs: it is recorded. Only where Device::can_record_graphs();
  // UNIMPLEMENTED elsewhere. A failed call in between makes EndRecording fail.
  virtual absl::Status BeginRecording() = 0;
  virtual absl::StatusOr<std::unique_ptr<Graph>> EndRecording() = 0;
  virtual absl::Status Launch(Graph& graph) = 0;
};

struct DeviceMemory {
  size_t free_bytes = 0;  // right now, whoever else uses the device
  size_t total_bytes = 0;
  // That Allocate gave this process and that were not freed since, of all its devices of a kind. 0
  // where the device is the host: not counted.
  size_t own_bytes = 0;
};

// Where memory and streams come from. All allocation happens at start-up, none per request.
// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  // "cpu", "cuda:0".
  virtual std::string name() const = 0;
  // Whether the host may read and write what Allocate gives.
  virtual bool is_host() const = 0;
  virtual bool can_record_graphs() const = 0;
  virtual absl::StatusOr<DeviceMemory> Memory() const = 0;
  // RESOURCE_EXHAUSTED with the sizes when the device has not that much.
  virtual absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) = 0;
  // Host memory that streams of the device copy from and to without a detour: page-locked where the
  // device needs that. RESOURCE_EXHAUSTED likewise.
  virtual absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
};

}  // namespace tandem
