#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/support/forwarding_device.h"

namespace tandem {

// A device whose streams' copies wait while the gate is closed, and that notes where they wrote.
// Thread-safe.
class GatedDevice final : public ForwardingDevice {
 public:
  explicit GatedDevice(Device& device) : ForwardingDevice(device) {}

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
  class GatedStream final : public ForwardingStream {
   public:
    GatedStream(GatedDevice& device, std::unique_ptr<Stream> stream)
        : ForwardingStream(std::move(stream)), device_(device) {}
    absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src) override {
      if (absl::Status status = device_.Pass(dst); !status.ok()) return status;
      return ForwardingStream::Copy(dst, src);
    }

   private:
    GatedDevice& device_;
  };

  std::unique_ptr<Stream> MakeStream(std::unique_ptr<Stream> stream) override {
    return std::make_unique<GatedStream>(*this, std::move(stream));
  }

  absl::Status Pass(std::span<std::byte> dst) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&open_));
    written_.push_back(dst);
    return status_;
  }

  mutable absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::span<std::byte>> written_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
