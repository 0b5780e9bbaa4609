#pragma once

#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/coded_gemm.h"
#include "kernels/cuda/gemm/cublaslt_library.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/scratch.h"
#include "kernels/op_args.h"

namespace tandem::cuda {

// Matrix products, each by the kernel or library that is fastest for it, and the memory that they
// work in. Calls on several streams must be ordered by events. Thread: one at a time.
class Products {
 public:
  // `device` and `library` must outlive it.
  Products(CudaDevice& device, const CublasLtLibrary& library);

  // Allocates the memory that products work in, and that for quantised weights if there are any.
  // The memory for converting f32 rows that meet 16-bit weights grows with the first such product.
  absl::Status Reserve(bool has_coded_weights);
  // As Ops::PackWeight.
  absl::Status Pack(CudaStream& stream, const LaunchTarget& on, const PackedMatrix& dst,
                    std::span<const TensorView> sources, const TensorView& scales);
  // As Ops::Gemm and Ops::PrepareGemm.
  absl::Status Multiply(CudaStream& stream, const LaunchTarget& on, GemmArgs args);
  absl::Status Prepare(const GemmArgs& args);

 private:
  CublasLtGemm library_;
  CodedGemm coded_;
  Scratch workspace_;
  Scratch converted_;
};

}  // namespace tandem::cuda
