#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/op_cost.h"
#include "kernels/registry.h"

namespace tandem {

// One op at one shape. `call` runs it once, on weights and KV that no cache holds.
struct KernelCase {
  std::string op;
  std::string shape;
  OpCost cost;
  std::function<absl::Status()> call;
};

// Arrays of the cases, in device memory, random but for what must be in a range.
class KernelArrays {
 public:
  static absl::StatusOr<std::unique_ptr<KernelArrays>> Create(Backend backend);

  Ops& ops() { return *backend_.ops; }
  Stream& stream() { return *stream_; }

  absl::StatusOr<std::byte*> Bytes(int64_t bytes);
  // In [-0.5, 0.5).
  absl::StatusOr<TensorView> Floats(std::initializer_list<int64_t> shape);
  absl::StatusOr<TensorView> Constants(std::initializer_list<int64_t> shape, float value);
  // One weight after the other out of more memory than caches hold; the content is random bf16.
  absl::StatusOr<std::byte*> NextWeight(int64_t bytes);

 private:
  explicit KernelArrays(Backend backend) : backend_(std::move(backend)) {}

  absl::StatusOr<TensorView> Upload(std::initializer_list<int64_t> shape,
                                    std::span<const float> values);
  absl::Status FillWeights();

  Backend backend_;
  std::unique_ptr<Stream> stream_;
  std::mt19937 rng_{1};
  std::vector<DeviceBuffer> buffers_;
  DeviceBuffer weights_;
  int64_t weight_offset_ = 0;
};

// Every op, in the shapes of a model of hidden size 1024, 16 query and 8 KV heads of 64, an MLP of
// 2816 and a vocabulary of 32000. The arrays must outlive the cases.
absl::StatusOr<std::vector<KernelCase>> AllKernelCases(KernelArrays& arrays);

}  // namespace tandem
