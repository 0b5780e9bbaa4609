#include "kernels/cpu/faster_compute.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/processor.h"

namespace tandem::cpu {
namespace {

// A product as a prompt has it, whose weights stay in the second cache: 34 MFLOP.
constexpr int64_t kRows = 64;
constexpr int64_t kInputs = 1024;
constexpr int64_t kOutputs = 256;
// The shortest of so many times is the least disturbed one.
constexpr int kRounds = 9;

class TimedProduct {
 public:
  explicit TimedProduct(CpuCompute compute) : ops_(1, compute) {
    stream_ = Value(device_->NewStream());
    const int64_t bytes = ops_.PackedBytes(DType::kBF16, kOutputs, kInputs);
    packed_ = Value(device_->Allocate(static_cast<size_t>(bytes)));
    weight_ = {.data = packed_.data(), .format = DType::kBF16, .n = kOutputs, .k = kInputs};
    std::vector<uint16_t> zeros(kOutputs * kInputs);
    const TensorView source(zeros.data(), DType::kBF16, {kOutputs, kInputs});
    TANDEM_CHECK(ops_.PackWeight(*stream_, weight_, {&source, 1}).ok(), "packing zeros");
  }

  Duration Run() {
    const TimePoint begin = clock_.Now();
    const absl::Status status =
        ops_.Gemm(*stream_, {.x = TensorView(x_.data(), DType::kF32, {kRows, kInputs}),
                             .weight = weight_,
                             .out = TensorView(out_.data(), DType::kF32, {kRows, kOutputs})});
    TANDEM_CHECK(status.ok(), "multiplying zeros");
    return clock_.Now() - begin;
  }

 private:
  template <class T>
  static T Value(absl::StatusOr<T> value) {
    TANDEM_CHECK(value.ok(), "host memory of half a megabyte");
    return *std::move(value);
  }

  SteadyClock clock_;
  CpuOps ops_;
  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_;
  DeviceBuffer packed_;
  PackedMatrix weight_;
  std::vector<float> x_ = std::vector<float>(kRows * kInputs);
  std::vector<float> out_ = std::vector<float>(kRows * kOutputs);
};

ComputeTimes Measure() {
  TimedProduct f32(CpuCompute::kF32);
  TimedProduct bf16(CpuCompute::kBF16);
  ComputeTimes times = {.f32 = Duration::max(), .bf16 = Duration::max()};
  for (int round = 0; round < kRounds; ++round) {
    times.f32 = std::min(times.f32, f32.Run());
    times.bf16 = std::min(times.bf16, bf16.Run());
  }
  return times;
}

}  // namespace

// Processors multiply pairs in half the time of floats, or in no less time at all: the margin lies between.
CpuCompute FasterOf(const ComputeTimes& times) {
  return times.bf16 * 4 < times.f32 * 3 ? CpuCompute::kBF16 : CpuCompute::kF32;
}

CpuCompute FasterCompute() {
  static const CpuCompute faster = HasBF16Dots() ? FasterOf(Measure()) : CpuCompute::kF32;
  return faster;
}

}  // namespace tandem::cpu
