#include "kernels/cuda/gemm/products.h"

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/memory/copy_rows.h"

namespace tandem::cuda {

Products::Products(CudaDevice& device, const CublasLtLibrary& library)
    : library_(library),
      coded_(device),
      workspace_(device, "gemm: workspace"),
      converted_(device, "gemm: converted x") {}

absl::Status Products::Reserve(bool has_coded_weights) {
  // This also makes the device the calling thread's current one, to which the library's handle,
  // created next, will belong.
  RETURN_IF_ERROR(workspace_.Reserve(CublasLtGemm::kWorkspaceBytes));
  RETURN_IF_ERROR(library_.Prepare());
  return has_coded_weights ? coded_.Reserve() : absl::OkStatus();
}

absl::Status Products::Pack(CudaStream& stream, const LaunchTarget& on, const PackedMatrix& dst,
                            std::span<const TensorView> sources, const TensorView& scales) {
  if (dst.format.has_codes()) return coded_.Pack(stream, on, dst, sources, scales);
  std::byte* to = dst.data;
  for (const TensorView& source : sources) {
    RETURN_IF_ERROR(CopyRows(stream, source, to));
    to += source.rows() * dst.k * SizeOf(dst.format.dtype());
  }
  return absl::OkStatus();
}

// Few rows go to a kernel that does nothing but stream the weights; more go to cuBLASLt, which
// takes x and weight of one type.
absl::Status Products::Multiply(CudaStream& stream, const LaunchTarget& on, GemmArgs args) {
  if (TakesSkinnyGemm(args)) return ToStatus(SkinnyGemm(on, args), "gemm");
  if (args.weight.format.has_codes()) {
    return coded_.Multiply(stream, on, args,
                           [&](const GemmArgs& floats) { return Multiply(stream, on, floats); });
  }
  const DType type = args.weight.format.dtype();
  if (args.x.dtype != type) {
    const int64_t rows = args.x.rows();
    const int64_t k = args.weight.k;
    ASSIGN_OR_RETURN(std::byte* const memory,
                     converted_.Get(stream, static_cast<size_t>(rows * k * SizeOf(type))));
    const TensorView converted(memory, type, {rows, k});
    RETURN_IF_CUDA_ERROR(Convert(on, args.x, converted), "gemm");
    args.x = converted;
  }
  ASSIGN_OR_RETURN(std::byte* const workspace,
                   workspace_.Get(stream, CublasLtGemm::kWorkspaceBytes));
  RETURN_IF_ERROR(library_.Run(stream, args, workspace));
  if (!args.bias.present()) return absl::OkStatus();
  return ToStatus(AddBias(on, args.out, args.bias), "gemm");
}

absl::Status Products::Prepare(const GemmArgs& args) {
  if (TakesSkinnyGemm(args)) return absl::OkStatus();
  if (args.weight.format.has_codes()) {
    return coded_.Prepare(args, [this](const GemmArgs& floats) { return Prepare(floats); });
  }
  // Where x is converted, the call puts it in memory that is not known yet, so nothing can be
  // prepared.
  const bool is_converted = args.x.dtype != args.weight.format.dtype();
  return is_converted ? absl::OkStatus() : library_.Prepare(args);
}

}  // namespace tandem::cuda
