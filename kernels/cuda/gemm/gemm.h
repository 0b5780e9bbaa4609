#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/cublaslt_library.h"
#include "kernels/op_args.h"

namespace tandem::cuda {

// Matrix products by cuBLASLt: sums in f32, of f32 inputs too (no TF32). The library is asked once
// per problem which kernel to use. The choice depends on the number of rows, and with it the order
// of a row's sum: not batch-invariant, unlike SkinnyGemm. Thread: one at a time.
class CublasLtGemm {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  explicit CublasLtGemm(const CublasLtLibrary& library) : lt_(library) {}

  // Creates the library's handle, which takes device memory of its own; else the first Run does.
  absl::Status Prepare();
  // Asks the library ahead for the kernel that Run with such arguments needs. INTERNAL as Run.
  absl::Status Prepare(const GemmArgs& args) { return SolutionOf(args).status(); }
  // out = x * weight^T, or out += x * weight^T; x is of the weight's type, the bias is not looked
  // at. `workspace` has kWorkspaceBytes. INTERNAL when the library has no kernel for it.
  absl::Status Run(CudaStream& stream, const GemmArgs& args, std::byte* workspace);

 private:
  template <class Handle>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

  // All that the choice of a kernel depends on.
  struct Problem {
    int64_t rows;
    int64_t n;
    int64_t k;
    int64_t x_stride;
    int64_t out_stride;
    DType type;
    DType out_type;
    GemmOutput output;
    uint32_t alignment;  // of the four pointers, in bytes

    friend bool operator==(const Problem&, const Problem&) = default;
    template <class H>
    friend H AbslHashValue(H h, const Problem& p) {
      return H::combine(std::move(h), p.rows, p.n, p.k, p.x_stride, p.out_stride, p.type,
                        p.out_type, p.output, p.alignment);
    }
  };
  struct Solution {
    Owned<cublasLtMatmulDesc_t> product;
    Owned<cublasLtMatrixLayout_t> weight;
    Owned<cublasLtMatrixLayout_t> x;
    Owned<cublasLtMatrixLayout_t> out;
    cublasLtMatmulAlgo_t algorithm;
  };

  static Problem ProblemOf(const GemmArgs& args);
  absl::StatusOr<Solution> Solve(const Problem& problem) const;
  // The kernel to use for `args`, asked for now or before. The pointer is valid until the next
  // call.
  absl::StatusOr<const Solution*> SolutionOf(const GemmArgs& args);
  absl::StatusOr<Owned<cublasLtMatmulDesc_t>> NewProduct() const;
  absl::StatusOr<Owned<cublasLtMatrixLayout_t>> NewLayout(DType type, int64_t rows, int64_t columns,
                                                          int64_t stride) const;
  absl::StatusOr<Owned<cublasLtMatmulPreference_t>> NewPreference(uint32_t alignment) const;
  absl::Status ToStatus(cublasStatus_t status, std::string_view what) const;

  const CublasLtLibrary& lt_;
  Owned<cublasLtHandle_t> handle_{nullptr, nullptr};
  absl::flat_hash_map<Problem, Solution> solutions_;
};

}  // namespace tandem::cuda
