#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tandem {

// Memory of one device, or host memory that its streams reach; freed by the destructor. Move-only.
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

// A point in a Stream. Done() says without blocking whether the stream has passed it.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool Done() const = 0;
  virtual absl::Status Synchronize() = 0;
};

// Work that a stream recorded instead of running it, to be queued again as a whole. The memory that
// it reads and writes must stay where it was.
class Graph {
 public:
  virtual ~Graph() = default;
};

// Bytes to copy from one place to another.
struct ExtentCopy {
  std::span<std::byte> dst;
  std::span<const std::byte> src;  // as long as dst
};

// An in-order queue of one device. The CPU's runs inline: a call returns when its work is done.
// Thread: one at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // Queues a copy; either side may be memory of the device or of the host. Host memory that is not
  // of AllocateHost is copied by way of the driver's own buffers: the call may wait, so no step
  // does that.
  virtual absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src) = 0;
  // Queues many copies within memory that the device reaches by itself: its own, what OpenShared,
  // AllocateHost and RegisterHost gave, or the host's where the device is the host. Takes a few
  // launches, however many the copies are. hashes[i] becomes the XXH3-64 of what copies[i] wrote;
  // `hashes` is memory of AllocateHost. Sources, targets and `hashes` must stay as they are until
  // the queued work has run; `copies` may go at once. INVALID_ARGUMENT where the sizes differ.
  virtual absl::Status CopyAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes) = 0;
  // As CopyAll, but hashes each extent where it lies and copies nothing.
  virtual absl::Status HashAll(std::span<const std::span<const std::byte>> extents,
                               std::span<uint64_t> hashes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> Record() = 0;
  // What is queued from here on runs after `event`, which may be of another stream of the device.
  virtual absl::Status Wait(const Event& event) = 0;
  virtual absl::Status Synchronize() = 0;

  // What is queued between BeginRecording and EndRecording does not run but is recorded. Only where
  // Device::can_record_graphs(); UNIMPLEMENTED elsewhere. A failed call in between makes
  // EndRecording fail.
  virtual absl::Status BeginRecording() = 0;
  virtual absl::StatusOr<std::unique_ptr<Graph>> EndRecording() = 0;
  virtual absl::Status Launch(Graph& graph) = 0;

  // The queue as the driver's own libraries know it (cudaStream_t); null where there are none.
  virtual void* native_handle() const = 0;
};

struct DeviceMemory {
  size_t free_bytes = 0;  // right now, whoever else uses the device
  size_t total_bytes = 0;
  // Bytes that Allocate gave this process and that were not freed since, over all its devices of a
  // kind. 0 where the device is the host: not counted.
  size_t own_bytes = 0;
};

// What another process of this machine needs in order to open memory: a description, and a file to
// send along where there is one.
struct MemoryHandle {
  enum class Kind : uint8_t {
    kHostFile = 1,    // memory of the host, in a file that is mapped
    kDeviceFile = 2,  // an allocation of the driver's virtual memory management, behind a file
    kCudaIpc = 3,     // no file: an IPC token of the CUDA runtime
  };
  static constexpr size_t kTokenBytes = 64;

  Kind kind = Kind::kHostFile;
  uint64_t bytes = 0;
  UniqueFd file;
  std::array<std::byte, kTokenBytes> token{};  // kCudaIpc alone
};

// A device that memory and streams are taken from. All allocation happens at start-up, none per
// request. Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  // The device's name: "cpu", "cpu-bf16", "cuda:0".
  virtual std::string name() const = 0;
  // Whether the host may read and write the memory that Allocate gives.
  virtual bool is_host() const = 0;
  virtual bool can_record_graphs() const = 0;
  virtual absl::StatusOr<DeviceMemory> Memory() const = 0;
  // RESOURCE_EXHAUSTED, with the sizes, when the device has less than `bytes` left.
  virtual absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) = 0;
  // Host memory that streams of the device copy from and to directly: page-locked where the device
  // needs that. RESOURCE_EXHAUSTED, with the sizes, when there is not enough.
  virtual absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) = 0;
  // Makes host memory that the caller has mapped usable like memory of AllocateHost, for as long as
  // the buffer lives and the caller keeps it mapped. RESOURCE_EXHAUSTED when the system does not
  // page-lock so much, FAILED_PRECONDITION when the device does not reach it by the host's
  // addresses. May take milliseconds.
  virtual absl::StatusOr<DeviceBuffer> RegisterHost(std::span<std::byte> memory) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  // As NewStream, for the steps of an engine. Where kernels of several streams wait for a device that
  // is busy, those of such a stream start first, so that transfers beside a step do not delay it.
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewComputeStream() { return NewStream(); }

  // Whether processes of this machine can open memory of one another's devices of this kind.
  virtual bool can_share() const = 0;
  // As Allocate, for memory that Share accepts. UNIMPLEMENTED unless can_share().
  virtual absl::StatusOr<DeviceBuffer> AllocateShared(size_t bytes) = 0;
  // The handle of `memory`, which is the whole of what AllocateShared gave here. INVALID_ARGUMENT
  // for anything else.
  virtual absl::StatusOr<MemoryHandle> Share(std::span<const std::byte> memory) = 0;
  // Opens the memory behind another process's handle, for reading. The memory stays valid when that
  // process frees it or dies (kCudaIpc: as far as the driver goes). INVALID_ARGUMENT for a handle
  // that is none or whose size is not that of the memory, FAILED_PRECONDITION for one of another
  // kind of device or of a device that this one cannot reach. May take milliseconds.
  virtual absl::StatusOr<DeviceBuffer> OpenShared(const MemoryHandle& handle) = 0;
};

}  // namespace tandem
