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
  std::string name;  // "cpu_AVX2", "cuda_0"

  bool on_cpu() const { return IsCpuName(backend); }
};

// Every backend of this machine; the CPU's once per target that was compiled and can run here.
std::vector<OpsSetup> AllOpsSetups();
// The CPU's alone, under this one of its names.
std::vector<OpsSetup> CpuOpsSetups(const std::string& backend = "cpu");

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
  // What an array of `dtype` holds, widened.
  std::vector<float> Floats(DType dtype) const;
  void Upload(std::span<const std::byte> content);

 private:
  static constexpr size_t kGuardBytes = 256;

  void DownloadBytes(std::span<std::byte> content) const;

  Stream* stream_;
  DeviceBuffer buffer_;
  size_t size_;
};

// Opens the backend of the parameter; 3 threads unless a test asks for another number. What the
// tests may expect of a backend, in bits and in error, is said here and nowhere else.
class OpsTest : public testing::TestWithParam<OpsSetup> {
 protected:
  void SetUp() override;
  void TearDown() override;

  void UseThreads(int num_threads);
  // From here on the kernels that a GPU of this compute capability (89 for 8.9) would take, where
  // the GPU's own is higher. The CPU stays as it is.
  void UseKernelsOf(int compute_capability);
  Ops& ops() { return *backends_.back().ops; }
  Device& device() { return *backends_.back().device; }
  Stream& stream() { return *streams_.back(); }

  template <class T>
  DeviceArray ToDevice(const std::vector<T>& values) {
    return DeviceArray(device(), stream(), std::as_bytes(std::span(values)));
  }
  // Rounded to `dtype`.
  DeviceArray ToDeviceAs(DType dtype, const std::vector<float>& values);
  // An output: NaN until it is written.
  DeviceArray NewOutput(int64_t elements, DType dtype = DType::kF32);
  std::vector<float> Random(int64_t count, float scale = 1.0f);

  // P2: the CPU's bits depend on the row alone in every op. Other backends' do where
  // SplitMode::kFixed is asked for, and their prefill and decode are different code.
  bool always_batch_invariant() const { return GetParam().on_cpu(); }
  bool prefill_equals_decode() const { return GetParam().on_cpu(); }

  // The types that the backend takes as activations, f32 first.
  std::vector<DType> ActivationTypes();
  // The types that the backend keeps KV in, with heads of this size. Of "cpu-bf16" the one that it
  // does not multiply as "cpu" does.
  std::vector<DType> KvTypes(int32_t head_dim) const;
  // What x [T, k] of f32 may be rounded to before it is multiplied with weights or KV of `stored`:
  // tensor cores take both sides in one type.
  DType ProductType(DType stored) const;
  // The relative L2 error to be expected where values were rounded to `dtype` on the way, and the
  // arithmetic is otherwise of error `f32_bound`.
  static double Bound(double f32_bound, DType dtype);

  // `full`, or less where code also runs in an emulator, which is slow.
  int64_t Size(int64_t full, int64_t reduced) const { return GetParam().on_cpu() ? full : reduced; }
  std::vector<int> ThreadCounts() const;

  std::mt19937_64 rng_{20240607};

 private:
  void Use(const BackendOptions& options);

  std::vector<Backend> backends_;  // the last is in use; arrays may belong to earlier ones
  std::vector<std::unique_ptr<Stream>> streams_;
};

// A dense tensor over host values or device memory.
TensorView Tensor(const std::vector<float>& values, std::initializer_list<int64_t> shape);
TensorView Tensor(const DeviceArray& array, std::initializer_list<int64_t> shape,
                  DType dtype = DType::kF32);

// The values that arrays of `dtype` hold for these.
std::vector<float> Rounded(DType dtype, std::vector<float> values);

// |actual - expected| / |expected|, both taken as one vector.
double RelativeError(std::span<const float> actual, std::span<const double> expected);

bool BitwiseEqual(std::span<const float> a, std::span<const float> b);

}  // namespace tandem

#define TANDEM_INSTANTIATE_OPS_TEST_ON(suite, setups) \
  INSTANTIATE_TEST_SUITE_P(                           \
      Backends, suite, testing::ValuesIn(setups),     \
      [](const testing::TestParamInfo<OpsSetup>& info) { return info.param.name; })
#define TANDEM_INSTANTIATE_OPS_TEST(suite) TANDEM_INSTANTIATE_OPS_TEST_ON(suite, AllOpsSetups())
