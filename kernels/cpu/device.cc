#include "kernels/cpu/device.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/status.h"
#include "kernels/cpu/copy_and_hash.h"
#include "kernels/cpu/host_pages.h"
#include "kernels/cpu/shared_memory.h"
#include "kernels/extent_checks.h"

namespace tandem {
namespace {

size_t PhysicalBytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

absl::Status CheckFits(size_t bytes) {
  if (bytes <= PhysicalBytes()) return absl::OkStatus();
  return ResourceExhausted("cpu: {} bytes asked for, but the machine has {}", bytes,
                           PhysicalBytes());
}

void FreeBuffer(std::byte* data, size_t size) { UnmapPages(data, MappedBytes(size)); }

class CpuEvent final : public Event {
 public:
  bool Done() const override { return true; }
  absl::Status Synchronize() override { return absl::OkStatus(); }
};

class CpuStream final : public Stream {
 public:
  absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src) override {
    if (dst.size() != src.size()) {
      return InvalidArgument("copy of {} bytes into {}: the sizes must be equal", src.size(),
                             dst.size());
    }
    if (!src.empty()) std::memmove(dst.data(), src.data(), src.size());
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return std::make_unique<CpuEvent>(); }
  absl::Status Wait(const Event&) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

  absl::Status CopyAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes) override {
    RETURN_IF_ERROR(CheckRoomForHashes(copies.size(), hashes.size()));
    RETURN_IF_ERROR(CheckCopySizes(copies));
    cpu::CopyAndHashAll(copies, hashes);
    return absl::OkStatus();
  }
  absl::Status HashAll(std::span<const std::span<const std::byte>> extents,
                       std::span<uint64_t> hashes) override {
    RETURN_IF_ERROR(CheckRoomForHashes(extents.size(), hashes.size()));
    for (size_t i = 0; i < extents.size(); ++i) hashes[i] = Hash64(extents[i]);
    return absl::OkStatus();
  }
  void* native_handle() const override { return nullptr; }

  absl::Status BeginRecording() override { return NoGraphs(); }
  absl::StatusOr<std::unique_ptr<Graph>> EndRecording() override { return NoGraphs(); }
  absl::Status Launch(Graph&) override { return NoGraphs(); }

 private:
  static absl::Status NoGraphs() {
    return Unimplemented("cpu: work is run as it is queued and cannot be recorded");
  }
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(std::string name) : name_(std::move(name)) {}

  std::string name() const override { return name_; }
  bool is_host() const override { return true; }
  bool can_record_graphs() const override { return false; }

  absl::StatusOr<DeviceMemory> Memory() const override {
    const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return DeviceMemory{.free_bytes = static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page_bytes,
                        .total_bytes = PhysicalBytes()};
  }

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    RETURN_IF_ERROR(CheckFits(bytes));
    std::byte* data = MapPages(MappedBytes(bytes));
    if (data == nullptr) {
      return ResourceExhausted("cpu: {} bytes could not be mapped: {}", bytes, ErrnoMessage(errno));
    }
    return DeviceBuffer(data, bytes, FreeBuffer);
  }

  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override { return Allocate(bytes); }
  absl::StatusOr<DeviceBuffer> RegisterHost(std::span<std::byte> memory) override {
    return DeviceBuffer(memory.data(), memory.size(), [](std::byte*, size_t) {});
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<CpuStream>();
  }

  bool can_share() const override { return true; }
  absl::StatusOr<DeviceBuffer> AllocateShared(size_t bytes) override {
    RETURN_IF_ERROR(CheckFits(bytes));
    return AllocateSharedHostMemory(bytes);
  }
  absl::StatusOr<MemoryHandle> Share(std::span<const std::byte> memory) override {
    return ShareHostMemory(memory);
  }
  absl::StatusOr<DeviceBuffer> OpenShared(const MemoryHandle& handle) override {
    return OpenSharedHostMemory(handle);
  }

 private:
  const std::string name_;
};

}  // namespace

std::unique_ptr<Device> NewCpuDevice(std::string name) {
  return std::make_unique<CpuDevice>(std::move(name));
}

}  // namespace tandem
