#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/scratch.h"
#include "kernels/op_args.h"

namespace tandem::cuda {

// Quantised weights (coded_weight.h): how the host has them packed, and their products with many
// rows. For these the weight is widened piece by piece to floats of x's type, which cuBLASLt
// multiplies. So such a product rounds each weight, unlike one of few rows (skinny_gemm.cu). Calls
// work in one scratch, so they must run one after the other. Thread: one at a time.
class CodedGemm {
 public:
  // `device` must outlive it.
  explicit CodedGemm(CudaDevice& device) : scratch_(device, "weights of codes") {}

  // Allocates the memory that all calls work in.
  absl::Status Reserve();
  // As Ops::PackWeight. Returns once it has run. INVALID_ARGUMENT for a value that has no code.
  absl::Status Pack(CudaStream& stream, const LaunchTarget& on, const PackedMatrix& dst,
                    std::span<const TensorView> sources, const TensorView& scales);

  using Product = absl::FunctionRef<absl::Status(const GemmArgs&)>;
  // Computes the product `args`: widens each piece of the weight, then calls `multiply` with the
  // product by that piece, which has floats alone.
  absl::Status Multiply(CudaStream& stream, const LaunchTarget& on, const GemmArgs& args,
                        Product multiply);
  // Calls `prepare` with the products that Multiply would compute for `args`; nothing is queued.
  absl::Status Prepare(const GemmArgs& args, Product prepare);

 private:
  // The rows of the weight that Multiply widens and multiplies at a time.
  struct Piece {
    int64_t first;
    int64_t count;
  };

  static std::vector<Piece> PiecesOf(const GemmArgs& args);
  static GemmArgs Widened(const GemmArgs& args, const Piece& piece, std::byte* floats);

  Scratch scratch_;
};

}  // namespace tandem::cuda
