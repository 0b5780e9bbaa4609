#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/device.h"

namespace tandem {

// A device that is not the host, whose copies happen when somebody waits for them and not before:
// until then the target holds other bytes. It can fail, and counts what it gave.
// Thread-safe; its streams as Stream.
class LateDevice final : public Device {
 public:
  enum class Failure : uint8_t { kNone, kCopy, kSynchronize };

  void Fail(Failure failure) { failure_ = failure; }
  int host_allocations() const { return host_allocations_; }

  std::string name() const override { return "late:0"; }
  bool is_host() const override { return false; }
  bool can_record_graphs() const override { return false; }
  absl::StatusOr<DeviceMemory> Memory() const override { return DeviceMemory(); }
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override { return New(bytes); }
  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    ++host_allocations_;
    return New(bytes);
  }
  absl::StatusOr<DeviceBuffer> RegisterHost(std::span<std::byte>) override { return NotShared(); }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<LateStream>(*this);
  }
  bool can_share() const override { return false; }
  absl::StatusOr<DeviceBuffer> AllocateShared(size_t) override { return NotShared(); }
  absl::StatusOr<MemoryHandle> Share(std::span<const std::byte>) override { return NotShared(); }
  absl::StatusOr<DeviceBuffer> OpenShared(const MemoryHandle&) override { return NotShared(); }

 private:
  class LateStream final : public Stream {
   public:
    explicit LateStream(const LateDevice& device) : device_(device) {}

    absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src) override {
      if (device_.failure_ == Failure::kCopy) return Gone();
      std::ranges::fill(dst, std::byte{0xEE});
      queued_.emplace_back(dst, src);
      return absl::OkStatus();
    }
    absl::Status Synchronize() override {
      const auto queued = std::exchange(queued_, {});
      if (device_.failure_ == Failure::kSynchronize) return Gone();
      for (const auto& [dst, src] : queued) std::ranges::copy(src, dst.begin());
      return absl::OkStatus();
    }
    absl::Status CopyAll(std::span<const ExtentCopy>, std::span<uint64_t>) override {
      return Unused();
    }
    absl::Status HashAll(std::span<const std::span<const std::byte>>,
                         std::span<uint64_t>) override {
      return Unused();
    }
    absl::StatusOr<std::unique_ptr<Event>> Record() override { return Unused(); }
    absl::Status Wait(const Event&) override { return Unused(); }
    absl::Status BeginRecording() override { return Unused(); }
    absl::StatusOr<std::unique_ptr<Graph>> EndRecording() override { return Unused(); }
    absl::Status Launch(Graph&) override { return Unused(); }
    void* native_handle() const override { return nullptr; }

   private:
    static absl::Status Gone() { return Internal("the device fell off the bus"); }
    static absl::Status Unused() { return Unimplemented("this device only copies"); }

    const LateDevice& device_;
    std::vector<std::pair<std::span<std::byte>, std::span<const std::byte>>> queued_;
  };

  static absl::Status NotShared() { return Unimplemented("this device shares no memory"); }
  static DeviceBuffer New(size_t bytes) {
    return DeviceBuffer(new std::byte[bytes], bytes,
                        [](std::byte* memory, size_t) { delete[] memory; });
  }

  std::atomic<Failure> failure_ = Failure::kNone;
  std::atomic<int> host_allocations_ = 0;
};

}  // namespace tandem
