#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/device.h"

namespace tandem {

// A stream that another one does the work of; tests override what they watch or break.
class ForwardingStream : public Stream {
 public:
  explicit ForwardingStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}

  absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src) override {
    return stream_->Copy(dst, src);
  }
  absl::Status CopyAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes) override {
    return stream_->CopyAll(copies, hashes);
  }
  absl::Status HashAll(std::span<const std::span<const std::byte>> extents,
                       std::span<uint64_t> hashes) override {
    return stream_->HashAll(extents, hashes);
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return stream_->Record(); }
  absl::Status Wait(const Event& event) override { return stream_->Wait(event); }
  absl::Status Synchronize() override { return stream_->Synchronize(); }
  absl::Status BeginRecording() override { return stream_->BeginRecording(); }
  absl::StatusOr<std::unique_ptr<Graph>> EndRecording() override { return stream_->EndRecording(); }
  absl::Status Launch(Graph& graph) override { return stream_->Launch(graph); }
  void* native_handle() const override { return stream_->native_handle(); }

 private:
  const std::unique_ptr<Stream> stream_;
};

// Likewise a device. Its streams are what MakeStream makes of the other's.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& device) : device_(device) {}

  std::string name() const override { return device_.name(); }
  bool is_host() const override { return device_.is_host(); }
  bool can_record_graphs() const override { return device_.can_record_graphs(); }
  absl::StatusOr<DeviceMemory> Memory() const override { return device_.Memory(); }
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override { return device_.Allocate(bytes); }
  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    return device_.AllocateHost(bytes);
  }
  absl::StatusOr<DeviceBuffer> RegisterHost(std::span<std::byte> memory) override {
    return device_.RegisterHost(memory);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    auto stream = device_.NewStream();
    if (!stream.ok()) return stream.status();
    return MakeStream(*std::move(stream));
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewComputeStream() override {
    auto stream = device_.NewComputeStream();
    if (!stream.ok()) return stream.status();
    return MakeStream(*std::move(stream));
  }
  bool can_share() const override { return device_.can_share(); }
  absl::StatusOr<DeviceBuffer> AllocateShared(size_t bytes) override {
    return device_.AllocateShared(bytes);
  }
  absl::StatusOr<MemoryHandle> Share(std::span<const std::byte> memory) override {
    return device_.Share(memory);
  }
  absl::StatusOr<DeviceBuffer> OpenShared(const MemoryHandle& handle) override {
    return device_.OpenShared(handle);
  }

 private:
  virtual std::unique_ptr<Stream> MakeStream(std::unique_ptr<Stream> stream) { return stream; }

  Device& device_;
};

}  // namespace tandem
