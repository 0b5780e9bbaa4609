#include "tests/support/ops_fixture.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/targets.h"
#include "tests/support/reference_ops.h"

namespace tandem {
namespace {

constexpr std::byte kGuard{0xA5};

}  // namespace

std::vector<OpsSetup> CpuOpsSetups(const std::string& backend) {
  std::string prefix = backend;
  std::replace(prefix.begin(), prefix.end(), '-', '_');
  std::vector<OpsSetup> setups;
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_NEON}}) {
    if ((supported & target) == 0) continue;
    setups.push_back({backend, target, prefix + "_" + hwy::TargetName(target)});
  }
  setups.push_back({backend, HWY_SCALAR, prefix + "_baseline"});
  return setups;
}

std::vector<OpsSetup> AllOpsSetups() {
  std::vector<OpsSetup> setups = CpuOpsSetups();
  for (const std::string& backend : BackendNames()) {
    if (IsCpuName(backend)) continue;
    std::string name = backend;
    std::replace(name.begin(), name.end(), ':', '_');
    setups.push_back({backend, 0, name});
  }
  return setups;
}

DeviceArray::DeviceArray(Device& device, Stream& stream, std::span<const std::byte> content)
    : stream_(&stream), size_(content.size()) {
  absl::StatusOr<DeviceBuffer> buffer = device.Allocate(size_ + 2 * kGuardBytes);
  TANDEM_CHECK(buffer.ok(), "no memory for a test");
  buffer_ = *std::move(buffer);
  const std::vector<std::byte> guards(buffer_.size(), kGuard);
  TANDEM_CHECK(stream.Copy(buffer_.bytes(), guards).ok(), "copy");
  Upload(content);
}

void DeviceArray::Upload(std::span<const std::byte> content) {
  TANDEM_CHECK(content.size() == size_, "another size");
  TANDEM_CHECK(stream_->Copy(buffer_.bytes().subspan(kGuardBytes, size_), content).ok(), "copy");
  TANDEM_CHECK(stream_->Synchronize().ok(), "synchronize");
}

std::vector<float> DeviceArray::Floats(DType dtype) const {
  if (dtype == DType::kF32) return Download<float>();
  const std::vector<std::byte> bytes = Download<std::byte>();
  std::vector<float> values(bytes.size() / static_cast<size_t>(SizeOf(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(reference::Load(dtype, bytes.data(), static_cast<int64_t>(i)));
  }
  return values;
}

void DeviceArray::DownloadBytes(std::span<std::byte> content) const {
  std::vector<std::byte> all(buffer_.size());
  ASSERT_TRUE(stream_->Copy(all, buffer_.bytes()).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  for (size_t i = 0; i < kGuardBytes; ++i) {
    ASSERT_EQ(all[i], kGuard) << "written " << kGuardBytes - i << " bytes before the array";
    ASSERT_EQ(all[kGuardBytes + size_ + i], kGuard) << "written " << i << " bytes past the array";
  }
  if (size_ > 0) std::memcpy(content.data(), all.data() + kGuardBytes, size_);
}

void OpsTest::SetUp() { UseThreads(3); }

void OpsTest::TearDown() {
  if (GetParam().on_cpu()) {
    const size_t used = hwy::GetChosenTarget().GetIndex();
    hwy::GetChosenTarget().Update(GetParam().simd_target);
    EXPECT_EQ(used, hwy::GetChosenTarget().GetIndex()) << "the test ran on another vector target";
  }
  hwy::GetChosenTarget().DeInit();
}

void OpsTest::UseThreads(int num_threads) { Use({.num_threads = num_threads}); }

void OpsTest::UseKernelsOf(int compute_capability) {
  Use({.num_threads = 3, .most_compute_capability = compute_capability});
}

void OpsTest::Use(const BackendOptions& options) {
  absl::StatusOr<Backend> backend = OpenBackend(GetParam().backend, options);
  ASSERT_TRUE(backend.ok()) << backend.status();
  // Last, because whatever asks Highway for the processor's targets chooses the best of them again.
  if (GetParam().on_cpu()) hwy::GetChosenTarget().Update(GetParam().simd_target);
  absl::StatusOr<std::unique_ptr<Stream>> stream = backend->device->NewStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  backends_.push_back(*std::move(backend));
  streams_.push_back(*std::move(stream));
}

DeviceArray OpsTest::ToDeviceAs(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(SizeOf(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    reference::Store(dtype, values[i], bytes.data(), static_cast<int64_t>(i));
  }
  return ToDevice(bytes);
}

// All ones is a NaN of every type.
DeviceArray OpsTest::NewOutput(int64_t elements, DType dtype) {
  return ToDevice(
      std::vector<std::byte>(static_cast<size_t>(elements * SizeOf(dtype)), std::byte{0xff}));
}

std::vector<DType> OpsTest::ActivationTypes() {
  std::vector<DType> types = {DType::kF32};
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    if (ops().ActivationType(dtype) == dtype) types.push_back(dtype);
  }
  return types;
}

std::vector<DType> OpsTest::KvTypes(int32_t head_dim) const {
  if (GetParam().backend == "cpu-bf16") return {DType::kBF16};
  std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};
  if (GetParam().on_cpu() && head_dim % kKvGroupChannels == 0) {
    types.insert(types.end(), {DType::kK8V8, DType::kK6V5, DType::kK4V3});
  }
  return types;
}

DType OpsTest::ProductType(DType stored) const {
  if (GetParam().on_cpu()) {
    const bool rounds = GetParam().backend == "cpu-bf16" && stored == DType::kBF16;
    return rounds ? DType::kBF16 : DType::kF32;
  }
  if (stored == DType::kF32) return DType::kF32;
  return stored == DType::kF16 ? DType::kF16 : DType::kBF16;
}

double OpsTest::Bound(double f32_bound, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return std::max(f32_bound, 6e-4);
    case DType::kBF16:
    case DType::kF8E4M3:
      return std::max(f32_bound, 4e-3);
    default:
      return f32_bound;
  }
}

std::vector<int> OpsTest::ThreadCounts() const {
  return GetParam().on_cpu() ? std::vector<int>{1, 2, 3} : std::vector<int>{1};
}

std::vector<float> OpsTest::Random(int64_t count, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(rng_);
  return values;
}

TensorView Tensor(const std::vector<float>& values, std::initializer_list<int64_t> shape) {
  return TensorView(const_cast<float*>(values.data()), DType::kF32, shape);
}

TensorView Tensor(const DeviceArray& array, std::initializer_list<int64_t> shape, DType dtype) {
  return TensorView(array.data(), dtype, shape);
}

std::vector<float> Rounded(DType dtype, std::vector<float> values) {
  if (dtype == DType::kF32) return values;
  for (float& value : values) value = static_cast<float>(reference::Rounded(dtype, value));
  return values;
}

double RelativeError(std::span<const float> actual, std::span<const double> expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(actual[i])) return INFINITY;
    difference += std::pow(actual[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
}

bool BitwiseEqual(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace tandem
