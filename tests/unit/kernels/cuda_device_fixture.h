#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/device/device.h"
#include "tests/simt/simt.h"

namespace tandem::cuda::device_fixture {

// Orders in which the emulator runs what is queued, where a test tries several.
inline constexpr int kSeeds = 20;

// Bytes that differ from one place to the next, and from those of another `first`.
inline std::vector<std::byte> Pattern(size_t size, int first) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(first + 7 * i);
  return bytes;
}

// The device of the CUDA backend on the emulated GPU, which runs what is queued as late and in as odd
// an order as streams and events allow.
class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() : device_(*CudaDevice::Open(0)) {}
  ~CudaDeviceTest() override { simt::SetSeed(1); }

  std::unique_ptr<CudaStream> NewStream() {
    return std::unique_ptr<CudaStream>(static_cast<CudaStream*>(device_->NewStream()->release()));
  }
  DeviceBuffer OnDevice(Stream& stream, std::span<const std::byte> content) {
    DeviceBuffer buffer = *device_->Allocate(content.size());
    EXPECT_TRUE(stream.Copy(buffer.bytes(), content).ok());
    EXPECT_TRUE(stream.Synchronize().ok());
    return buffer;
  }
  std::vector<std::byte> Read(Stream& stream, const DeviceBuffer& buffer) {
    std::vector<std::byte> content(buffer.size());
    EXPECT_TRUE(stream.Copy(content, buffer.bytes()).ok());
    EXPECT_TRUE(stream.Synchronize().ok());
    return content;
  }

  std::unique_ptr<CudaDevice> device_;
};

}  // namespace tandem::cuda::device_fixture
