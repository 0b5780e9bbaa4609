#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/registry.h"

namespace tandem {

// A backend and, for the CPU's, the vector target that its code is held to.
struct OpsSetup {
  std::string backend;
  int64_t simd_target = 0;
  std::string name;
};

// Every backend of this machine; the CPU's once per target that was compiled and can run here.
std::vector<OpsSetup> AllOpsSetups();

// Memory of a device between two guards of known bytes: what a kernel writes beside its output
// shows when the array is read back.
class DeviceArray {
 public:
  DeviceArray(Device& device, Stream& stream, std::span<const std::byte> content);

  void* data() const { return buffer_.data() + kGuardBytes; }
  size_t size_bytes() const { return size_; }

  // Fails the test when a guard has changed.
  template <class T>
  std::vector<T> Download() const {
    std::vector<T> values(size_ / sizeof(T));
    DownloadBytes({reinterpret_cast<std::byte*>(values.data()), size_});
    return values;
  }
  void Upload(std::span<const std::byte> content);

 private:
  static constexpr size_t kGuardBytes = 256;

  void DownloadBytes(std::span<std::byte> content) const;

  Stream* stream_;
  DeviceBuffer buffer_;
  size_t size_;
};

// Opens the backend of the parameter; 3 threads unless a test asks for another number.
class OpsTest : public testing::TestWithParam<OpsSetup> {
 protected:
  void SetUp() override;
  void TearDown() override;

  void UseThreads(int num_threads);
  Ops& ops() { return *backends_.back().ops; }
  Stream& stream() { return *streams_.back(); }

  template <class T>
  DeviceArray ToDevice(const std::vector<T>& values) {
    return DeviceArray(*backends_.back().device, stream(), std::as_bytes(std::span(values)));
  }
  // An output: NaN until it is written.
  DeviceArray NewOutput(int64_t floats);
  std::vector<float> Random(int64_t count, float scale = 1.0f);

  std::mt19937_64 rng_{20240607};

 private:
  std::vector<Backend> backends_;  // the last is in use; arrays may belong to earlier ones
  std::vector<std::unique_ptr<Stream>> streams_;
};

// A dense f32 tensor over host values or device memory.
TensorView Tensor(const std::vector<float>& values, std::initializer_list<int64_t> shape);
TensorView Tensor(const DeviceArray& array, std::initializer_list<int64_t> shape);

// |actual - expected| / |expected|, both taken as one vector.
double RelativeError(std::span<const float> actual, std::span<const double> expected);

bool BitwiseEqual(std::span<const float> a, std::span<const float> b);

}  // namespace tandem

#define TANDEM_INSTANTIATE_OPS_TEST(suite)                \
  INSTANTIATE_TEST_SUITE_P(                               \
      Backends, suite, testing::ValuesIn(AllOpsSetups()), \
      [](const testing::TestParamInfo<OpsSetup>& info) { return info.param.name; })
