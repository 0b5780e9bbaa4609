#include "kernels/cuda/ops_cuda.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/gemm/coded_weight.h"
#include "kernels/cuda/kv_type.h"

namespace tandem::cuda {
namespace {

constexpr size_t kCallsAtOnce = 8;  // calls whose uploads are under way before one waits

}  // namespace

CudaOps::CudaOps(CudaDevice& device, const CublasLtLibrary& library)
    : device_(device),
      staging_(device, kCallsAtOnce),
      products_(device, library),
      sampler_(device),
      decode_plan_(device, "attention_decode: plan"),
      own_decode_plan_(device, "attention_decode: plan"),
      decode_partials_(device, "attention_decode: partial results"),
      own_prefill_tiles_(device, "attention_prefill: plan"),
      prefill_partials_(device, "attention_prefill: partial results") {}

absl::Status CudaOps::Reserve(const WorkLimits& limits) {
  limits_ = limits;
  RETURN_IF_ERROR(products_.Reserve(limits.has_coded_weights));
  RETURN_IF_ERROR(sampler_.Reserve(limits));
  return ReserveAttention(limits);
}

size_t CudaOps::PlanBytes() const {
  return PrefillPlanBytes(device_.target(), LargestPrefill()) + Sampler::PlanBytes(limits_);
}

// Floats are row-major [n, k], as the checkpoint has them: what cuBLASLt and the other readers
// take.
int64_t CudaOps::PackedBytes(WeightFormat format, int64_t n, int64_t k) const {
  return format.has_codes() ? CodedWeightBytes(n, k) : n * k * SizeOf(format.dtype());
}

LaunchTarget CudaOps::On(const CudaStream& stream) const {
  LaunchTarget target = device_.target();
  target.stream = stream.handle();
  return target;
}

absl::Status CudaOps::DoPackWeight(Stream& stream, const PackedMatrix& dst,
                                   std::span<const TensorView> sources, const TensorView& scales) {
  return Run(stream, [&](const LaunchTarget& on) {
    auto& cuda_stream = static_cast<CudaStream&>(stream);
    return Annotate(products_.Pack(cuda_stream, on, dst, sources, scales), "pack_weight");
  });
}

absl::Status CudaOps::DoEmbedding(Stream& stream, const EmbeddingArgs& args) {
  EmbeddingArgs a = args;
  return Run(
      stream,
      [&](const LaunchTarget& on) {
        const bool has_codes = a.table.format.has_codes();
        return ToStatus(has_codes ? CodedEmbedding(on, a) : cuda::Embedding(on, a), "embedding");
      },
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
    return products_.Multiply(static_cast<CudaStream&>(stream), on, args);
  });
}

absl::Status CudaOps::DoPrepareGemm(const GemmArgs& args) { return products_.Prepare(args); }

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

// Touches no state of this object, so any thread may call it at any time.
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
