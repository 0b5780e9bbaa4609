#include "tests/support/payload_memory.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {

PayloadMemory::PayloadMemory(Device* device)
    : device_(device), stream_(device == nullptr ? nullptr : *device->NewStream()) {}

PayloadMemory::PayloadMemory(Device& device, size_t shared_bytes)
    : device_(&device),
      stream_(*device.NewStream()),
      shared_(*device.AllocateShared(shared_bytes)) {}

std::span<std::byte> PayloadMemory::New(size_t size) {
  absl::MutexLock lock(&mutex_);
  if (shared_.size() > 0) {
    constexpr size_t kAlignment = 64;
    const size_t at = shared_used_;
    shared_used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    TANDEM_CHECK(shared_used_ <= shared_.size(), "more payload than the test has memory for");
    return shared_.bytes().subspan(at, size);
  }
  if (device_ == nullptr) return {of_host_.emplace_back(new std::byte[size]).get(), size};
  auto memory = device_->Allocate(size);
  TANDEM_CHECK(memory.ok(), memory.status().ToString());
  return of_device_.emplace_back(*std::move(memory)).bytes();
}

void PayloadMemory::Copy(std::span<std::byte> dst, std::span<const std::byte> src) const {
  if (stream_ == nullptr) {
    std::ranges::copy(src, dst.begin());
    return;
  }
  TANDEM_CHECK(stream_->Copy(dst, src).ok() && stream_->Synchronize().ok(), "a copy failed");
}

void PayloadMemory::Write(std::span<std::byte> at, std::span<const std::byte> bytes) {
  absl::MutexLock lock(&mutex_);
  Copy(at, bytes);
}

std::vector<std::byte> PayloadMemory::Read(std::span<const std::byte> at) const {
  std::vector<std::byte> bytes(at.size());
  absl::MutexLock lock(&mutex_);
  Copy(bytes, at);
  return bytes;
}

}  // namespace tandem
