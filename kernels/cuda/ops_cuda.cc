#include "kernels/cuda/ops_cuda.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/kv_type.h"

namespace tandem::cuda {
namespace {

constexpr size_t kCallsAtOnce = 8;  // whose arrays are not staged, before one waits for the oldest

}  // namespace

CudaOps::CudaOps(CudaDevice& device, const CublasLtLibrary& library)
    : device_(device),
      staging_(device, kCallsAtOnce),
      gemm_(library),
      sampler_(device),
      gemm_workspace_(device, "gemm: workspace"),
      gemm_converted_(device, "gemm: converted x"),
      decode_plan_(device, "attention_decode: plan"),
      own_decode_plan_(device, "attention_decode: plan"),
      decode_partials_(device, "attention_decode: partial results"),
      own_prefill_tiles_(device, "attention_prefill: plan"),
      prefill_partials_(device, "attention_prefill: partial results") {}

// What a GEMM of f32 rows with 16-bit weights converts is not known here; it grows with the first.
absl::Status CudaOps::Reserve(const WorkLimits& limits) {
  limits_ = limits;
  // Makes the device the calling thread's, to which the library's state belongs from then on.
  RETURN_IF_ERROR(gemm_workspace_.Reserve(CublasLtGemm::kWorkspaceBytes));
  RETURN_IF_ERROR(gemm_.Prepare());
  RETURN_IF_ERROR(sampler_.Reserve(limits));
  return ReserveAttention(limits);
}

size_t CudaOps::PlanBytes() const {
  return PrefillPlanBytes(device_.target(), LargestPrefill()) + Sampler::PlanBytes(limits_);
}

// Row-major [n, k], as the checkpoint has it: what cuBLASLt and the other readers take.
int64_t CudaOps::PackedBytes(WeightFormat format, int64_t n, int64_t k) const {
  return format.has_codes() ? 0 : n * k * SizeOf(format.dtype());
}

LaunchTarget CudaOps::On(const CudaStream& stream) const {
  LaunchTarget target = device_.target();
  target.stream = stream.handle();
  return target;
}

absl::Status CudaOps::DoPackWeight(Stream& stream, const PackedMatrix& dst,
                                   std::span<const TensorView> sources, const TensorView&) {
  if (dst.format.has_codes()) {
    return Unimplemented("pack_weight: a GPU computes with no weights in {}", Name(dst.format));
  }
  std::byte* to = dst.data;
  for (const TensorView& source : sources) {
    const auto row_bytes = static_cast<size_t>(dst.k * SizeOf(dst.format.dtype()));
    const int64_t rows_at_once = source.contiguous() ? source.rows() : 1;
    for (int64_t row = 0; row < source.rows(); row += rows_at_once) {
      const size_t bytes = row_bytes * static_cast<size_t>(rows_at_once);
      const auto* from = static_cast<const std::byte*>(source.data) +
                         row * source.row_stride * SizeOf(dst.format.dtype());
      RETURN_IF_ERROR(Annotate(stream.Copy({to, bytes}, {from, bytes}), "pack_weight"));
      to += bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status CudaOps::DoEmbedding(Stream& stream, const EmbeddingArgs& args) {
  EmbeddingArgs a = args;
  return Run(
      stream, [&](const LaunchTarget& on) { return ToStatus(cuda::Embedding(on, a), "embedding"); },
      a.token_ids);
}

absl::Status CudaOps::DoRmsNorm(Stream& stream, const RmsNormArgs& args) {
  return Run(stream,
             [&](const LaunchTarget& on) { return ToStatus(cuda::RmsNorm(on, args), "rms_norm"); });
}

absl::Status CudaOps::DoRope(Stream& stream, const RopeArgs& args) {
  RopeArgs a = args;
  return Run(
      stream, [&](const LaunchTarget& on) { return ToStatus(cuda::Rope(on, a), "rope"); },
      a.positions);
}

absl::Status CudaOps::DoGemm(Stream& stream, const GemmArgs& args) {
  return Run(stream, [&](const LaunchTarget& on) {
    return QueueGemm(static_cast<CudaStream&>(stream), on, args);
  });
}

// Few rows go to a kernel that does nothing but stream the weights; more go to cuBLASLt, which
// takes x and weight of one type.
absl::Status CudaOps::QueueGemm(CudaStream& stream, const LaunchTarget& on, GemmArgs args) {
  if (cuda::TakesSkinnyGemm(args)) return ToStatus(cuda::SkinnyGemm(on, args), "gemm");
  if (args.x.dtype != args.weight.format.dtype()) {
    const int64_t rows = args.x.rows();
    const int64_t k = args.weight.k;
    ASSIGN_OR_RETURN(
        std::byte* const memory,
        gemm_converted_.Get(stream,
                            static_cast<size_t>(rows * k * SizeOf(args.weight.format.dtype()))));
    const TensorView converted(memory, args.weight.format.dtype(), {rows, k});
    RETURN_IF_CUDA_ERROR(cuda::Convert(on, args.x, converted), "gemm");
    args.x = converted;
  }
  ASSIGN_OR_RETURN(std::byte* const workspace,
                   gemm_workspace_.Get(stream, CublasLtGemm::kWorkspaceBytes));
  RETURN_IF_ERROR(gemm_.Run(stream, args, workspace));
  if (!args.bias.present()) return absl::OkStatus();
  return ToStatus(cuda::AddBias(on, args.out, args.bias), "gemm");
}

absl::Status CudaOps::DoPrepareGemm(const GemmArgs& args) {
  // Where x is converted, it will lie in memory that is made by the call.
  const bool is_converted = args.x.dtype != args.weight.format.dtype();
  if (cuda::TakesSkinnyGemm(args) || is_converted) return absl::OkStatus();
  return gemm_.Prepare(args);
}

absl::Status CudaOps::DoSiluMul(Stream& stream, const SiluMulArgs& args) {
  return Run(stream,
             [&](const LaunchTarget& on) { return ToStatus(cuda::SiluMul(on, args), "silu_mul"); });
}

absl::Status CudaOps::DoStoreKv(Stream& stream, const StoreKvArgs& args) {
  RETURN_IF_ERROR(CheckKvType(args.pool));
  StoreKvArgs a = args;
  return Run(
      stream, [&](const LaunchTarget& on) { return ToStatus(cuda::StoreKv(on, a), "store_kv"); },
      a.slots);
}

absl::Status CudaOps::DoRopeStoreKv(Stream& stream, const RopeArgs& rope,
                                    const StoreKvArgs& store) {
  RETURN_IF_ERROR(CheckKvType(store.pool));
  RopeArgs r = rope;
  StoreKvArgs s = store;
  return Run(
      stream,
      [&](const LaunchTarget& on) {
        return ToStatus(cuda::RopeStoreKv(on, r, s), "rope_store_kv");
      },
      r.positions, s.slots);
}

absl::Status CudaOps::DoColumnMass(Stream& stream, const ColumnMassArgs& args) {
  RETURN_IF_ERROR(CheckKvType(args.attention.pool));
  ColumnMassArgs a = args;
  AttentionArgs& attention = a.attention;
  return Run(
      stream,
      [&](const LaunchTarget& on) { return ToStatus(cuda::ColumnMass(on, a), "column_mass"); },
      attention.query_starts, attention.context_lens, attention.block_tables.ids,
      attention.block_tables.starts);
}

absl::Status CudaOps::DoCopyBlocks(Stream& stream, const CopyBlocksArgs& args) {
  CopyBlocksArgs a = args;
  return Run(
      stream,
      [&](const LaunchTarget& on) { return ToStatus(cuda::CopyBlocks(on, a), "copy_blocks"); },
      a.pairs);
}

absl::Status CudaOps::DoCopyTokens(Stream& stream, const CopyTokensArgs& args) {
  RETURN_IF_ERROR(CheckKvType(args.pool));
  StagedSpan<int32_t> from(args.from);
  StagedSpan<int32_t> to(args.to);
  return Run(
      stream,
      [&](const LaunchTarget& on) {
        return ToStatus(cuda::CopyTokens(on, args, from.device(), to.device()), "copy_tokens");
      },
      from, to);
}

template <class Move>
absl::Status CudaOps::MoveBlocks(Stream& stream, const MoveBlocksArgs& args, Move move) {
  items_.clear();
  for (const LayerBlock& item : args.items) items_.push_back({item.layer, item.block});
  StagedSpan<int2> items(items_);
  return Run(
      stream, [&](const LaunchTarget& on) { return move(on, items.device()); }, items);
}

absl::Status CudaOps::DoGatherBlocks(Stream& stream, const MoveBlocksArgs& args) {
  return MoveBlocks(stream, args, [&](const LaunchTarget& on, const int2* items) {
    return ToStatus(cuda::GatherBlocks(on, args, items), "gather_blocks");
  });
}

absl::Status CudaOps::DoScatterBlocks(Stream& stream, const MoveBlocksArgs& args) {
  return MoveBlocks(stream, args, [&](const LaunchTarget& on, const int2* items) {
    return ToStatus(cuda::ScatterBlocks(on, args, items), "scatter_blocks");
  });
}

// Nothing of this object's is touched, so that any thread may.
absl::Status CudaOps::DoConvertKv(Stream& stream, const ConvertKvArgs& args) {
  RETURN_IF_ERROR(CheckKvType(args.pool));
  return Run(stream, [&](const LaunchTarget& on) {
    return ToStatus(cuda::ConvertKv(on, args), "convert_kv");
  });
}

SamplePlan CudaOps::DoPlanSample(std::span<const SampleRow> rows, StepStaging& staging) {
  return sampler_.Plan(rows, staging);
}

absl::Status CudaOps::DoSample(Stream& stream, const SampleArgs& args) {
  return Run(stream, [&](const LaunchTarget& on) {
    return sampler_.Sample(static_cast<CudaStream&>(stream), on, args);
  });
}

}  // namespace tandem::cuda
