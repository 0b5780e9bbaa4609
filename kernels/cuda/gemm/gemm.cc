#include "kernels/cuda/gemm/gemm.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.h"

namespace tandem::cuda {
namespace {

// The most solutions that are kept, since prefill chunks come in any number of rows. More than a
// model prepares (model/transformer/transformer.cc), at some 700 bytes each.
constexpr size_t kMaxSolutions = 32768;
constexpr uint32_t kMaxAlignment = 256;  // what cuBLASLt makes use of

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

uint32_t Alignment(const void* data) {
  return uint32_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(data)),
                                 std::countr_zero(kMaxAlignment));
}

}  // namespace

absl::Status CublasLtGemm::ToStatus(cublasStatus_t status, std::string_view what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
  return MakeStatus(memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
                    "gemm: {}: {}", what, lt_.get_status_string(status));
}

absl::Status CublasLtGemm::Prepare() {
  if (handle_ != nullptr) return absl::OkStatus();
  cublasLtHandle_t handle = nullptr;
  RETURN_IF_ERROR(ToStatus(lt_.create(&handle), "open cuBLASLt"));
  handle_ = {handle, lt_.destroy};
  return absl::OkStatus();
}

CublasLtGemm::Problem CublasLtGemm::ProblemOf(const GemmArgs& args) {
  return {
      .rows = args.x.rows(),
      .n = args.weight.n,
      .k = args.weight.k,
      .x_stride = args.x.rows() > 1 ? args.x.row_stride : args.weight.k,
      .out_stride = args.out.rows() > 1 ? args.out.row_stride : args.weight.n,
      .type = args.weight.format.dtype(),
      .out_type = args.out.dtype,
      .output = args.output,
      .alignment =
          std::min({Alignment(args.x.data), Alignment(args.weight.data), Alignment(args.out.data)}),
  };
}

absl::StatusOr<CublasLtGemm::Owned<cublasLtMatmulDesc_t>> CublasLtGemm::NewProduct() const {
  cublasLtMatmulDesc_t handle = nullptr;
  RETURN_IF_ERROR(
      ToStatus(lt_.desc_create(&handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product"));
  Owned<cublasLtMatmulDesc_t> product(handle, lt_.desc_destroy);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  RETURN_IF_ERROR(
      ToStatus(lt_.desc_set(handle, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
               "describe a product"));
  return product;
}

absl::StatusOr<CublasLtGemm::Owned<cublasLtMatrixLayout_t>> CublasLtGemm::NewLayout(
    DType type, int64_t rows, int64_t columns, int64_t stride) const {
  cublasLtMatrixLayout_t handle = nullptr;
  RETURN_IF_ERROR(ToStatus(lt_.layout_create(&handle, TypeOf(type), static_cast<uint64_t>(rows),
                                             static_cast<uint64_t>(columns), stride),
                           "describe a matrix"));
  return Owned<cublasLtMatrixLayout_t>(handle, lt_.layout_destroy);
}

absl::StatusOr<CublasLtGemm::Owned<cublasLtMatmulPreference_t>> CublasLtGemm::NewPreference(
    uint32_t alignment) const {
  cublasLtMatmulPreference_t handle = nullptr;
  RETURN_IF_ERROR(ToStatus(lt_.preference_create(&handle), "state preferences"));
  Owned<cublasLtMatmulPreference_t> preference(handle, lt_.preference_destroy);
  const uint64_t workspace = kWorkspaceBytes;
  RETURN_IF_ERROR(ToStatus(lt_.preference_set(handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof(workspace)),
                           "state preferences"));
  // A product that is cut along k is summed in f32, too, not in the type of out.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  RETURN_IF_ERROR(ToStatus(lt_.preference_set(handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                              &reductions, sizeof(reductions)),
                           "state preferences"));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    RETURN_IF_ERROR(ToStatus(lt_.preference_set(handle, attribute, &alignment, sizeof(alignment)),
                             "state preferences"));
  }
  return preference;
}

// cuBLASLt is column-major, so the call asks for the transposed out [n, rows] as the transposed
// weight [k, n] times the transposed x [k, rows]: the memory is the same.
absl::StatusOr<CublasLtGemm::Solution> CublasLtGemm::Solve(const Problem& p) const {
  ASSIGN_OR_RETURN(auto product, NewProduct());
  ASSIGN_OR_RETURN(auto weight, NewLayout(p.type, p.k, p.n, p.k));
  ASSIGN_OR_RETURN(auto x, NewLayout(p.type, p.k, p.rows, p.x_stride));
  ASSIGN_OR_RETURN(auto out, NewLayout(p.out_type, p.n, p.rows, p.out_stride));
  ASSIGN_OR_RETURN(const auto preference, NewPreference(p.alignment));
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  const cublasStatus_t status =
      lt_.get_heuristic(handle_.get(), product.get(), weight.get(), x.get(), out.get(), out.get(),
                        preference.get(), 1, &best, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    return Internal("gemm: cuBLASLt has no kernel for x {}[{}, {}] and weight [{}, {}]: {}",
                    Name(p.type), p.rows, p.k, p.n, p.k, lt_.get_status_string(status));
  }
  return Solution{std::move(product), std::move(weight), std::move(x), std::move(out), best.algo};
}

absl::StatusOr<const CublasLtGemm::Solution*> CublasLtGemm::SolutionOf(const GemmArgs& args) {
  RETURN_IF_ERROR(Prepare());
  const Problem problem = ProblemOf(args);
  auto it = solutions_.find(problem);
  if (it == solutions_.end()) {
    ASSIGN_OR_RETURN(Solution solution, Solve(problem));
    if (solutions_.size() >= kMaxSolutions) solutions_.clear();
    it = solutions_.emplace(problem, std::move(solution)).first;
  }
  return &it->second;
}

absl::Status CublasLtGemm::Run(CudaStream& stream, const GemmArgs& args, std::byte* workspace) {
  ASSIGN_OR_RETURN(const Solution* const solution, SolutionOf(args));
  const Solution& s = *solution;
  const float alpha = 1;
  const float beta = args.output == GemmOutput::kAccumulate ? 1 : 0;
  return ToStatus(
      lt_.matmul(handle_.get(), s.product.get(), &alpha, args.weight.data, s.weight.get(),
                 args.x.data, s.x.get(), &beta, args.out.data, s.out.get(), args.out.data,
                 s.out.get(), &s.algorithm, workspace, kWorkspaceBytes, stream.handle()),
      "run cuBLASLt");
}

}  // namespace tandem::cuda
