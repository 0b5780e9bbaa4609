#include "kernels/cpu/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Large buffers take whole huge pages, so that the last one is huge as well.
size_t MappedBytes(size_t bytes) {
  return RoundUp(bytes, bytes >= kHugePageBytes ? kHugePageBytes : PageBytes());
}

std::byte* Map(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

void Unmap(std::byte* data, size_t bytes) { munmap(data, bytes); }

void FreeBuffer(std::byte* data, size_t size) { Unmap(data, MappedBytes(size)); }

// Maps one huge page more than needed and gives back what lies outside the aligned part.
std::byte* MapHugeAligned(size_t bytes) {
  std::byte* start = Map(bytes + kHugePageBytes);
  if (start == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  const size_t before = RoundUp(address, kHugePageBytes) - address;
  const size_t after = kHugePageBytes - before;
  std::byte* data = start + before;
  if (before > 0) Unmap(start, before);
  if (after > 0) Unmap(data + bytes, after);
  madvise(data, bytes, MADV_HUGEPAGE);  // advice: where it is refused, small pages serve as well
  return data;
}

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
  std::string name() const override { return "cpu"; }
  bool is_host() const override { return true; }
  bool can_record_graphs() const override { return false; }

  absl::StatusOr<DeviceMemory> Memory() const override {
    const auto pages = [](int which) { return static_cast<size_t>(sysconf(which)) * PageBytes(); };
    return DeviceMemory{.free_bytes = pages(_SC_AVPHYS_PAGES),
                        .total_bytes = pages(_SC_PHYS_PAGES)};
  }

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    const size_t physical_bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * PageBytes();
    if (bytes > physical_bytes) {
      return ResourceExhausted("cpu: {} bytes asked for, but the machine has {}", bytes,
                               physical_bytes);
    }
    const size_t mapped_bytes = MappedBytes(bytes);
    std::byte* data = bytes >= kHugePageBytes ? MapHugeAligned(mapped_bytes) : Map(mapped_bytes);
    if (data == nullptr) {
      return ResourceExhausted("cpu: {} bytes could not be mapped: {}", bytes,
                               std::strerror(errno));
    }
    return DeviceBuffer(data, bytes, FreeBuffer);
  }

  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override { return Allocate(bytes); }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<CpuStream>();
  }
};

}  // namespace

std::unique_ptr<Device> NewCpuDevice() { return std::make_unique<CpuDevice>(); }

}  // namespace tandem
