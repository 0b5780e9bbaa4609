#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device.h"

namespace tandem {

// A device whose streams' copies wait while the gate is closed, and that notes where they wrote.
// Thread-safe.
class GatedDevice final : public Device {
 public:
  explicit GatedDevice(Device& device) : device_(device) {}

  std::string name() const override { return device_.name(); }
  bool is_host() const override { return device_.is_host(); }
  bool can_record_graphs() const override { return false; }
  absl::StatusOr<DeviceMemory> Memory() const override { return device_.Memory(); }
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override { return device_.Allocate(bytes); }
  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    return device_.AllocateHost(bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    auto stream = device_.NewStream();
    if (!stream.ok()) return stream.status();
    return std::make_unique<GatedStream>(*this, *std::move(stream));
  }

  void CloseGate() {
    absl::MutexLock lock(&mutex_);
    open_ = false;
  }
  void OpenGate() {
    absl::MutexLock lock(&mutex_);
    open_ = true;
  }
  // The copies to come fail with this.
  void FailWith(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
  }
  std::vector<std::span<std::byte>> written() const {
    absl::MutexLock lock(&mutex_);
    return written_;
  }

 private:
  class GatedStream final : public Stream {
   public:
    GatedStream(GatedDevice& device, std::unique_ptr<Stream> stream)
        : device_(device), stream_(std::move(stream)) {}
    absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src) override {
      if (absl::Status status = device_.Pass(dst); !status.ok()) return status;
      return stream_->Copy(dst, src);
    }
    absl::StatusOr<std::unique_ptr<Event>> Record() override { return stream_->Record(); }
    absl::Status Wait(const Event& event) override { return stream_->Wait(event); }
    absl::Status Synchronize() override { return stream_->Synchronize(); }
    absl::Status BeginRecording() override { return stream_->BeginRecording(); }
    absl::StatusOr<std::unique_ptr<Graph>> EndRecording() override {
      return stream_->EndRecording();
    }
    absl::Status Launch(Graph& graph) override { return stream_->Launch(graph); }

   private:
    GatedDevice& device_;
    std::unique_ptr<Stream> stream_;
  };

  absl::Status Pass(std::span<std::byte> dst) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&open_));
    written_.push_back(dst);
    return status_;
  }

  Device& device_;
  mutable absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::span<std::byte>> written_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
