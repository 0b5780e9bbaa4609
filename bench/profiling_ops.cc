#include "bench/profiling_ops.h"

#include "base/status.h"

namespace tandem {

std::string_view Name(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding:
      return "embedding";
    case OpKind::kRmsNorm:
      return "rms_norm";
    case OpKind::kRope:
      return "rope";
    case OpKind::kGemm:
      return "gemm";
    case OpKind::kSiluMul:
      return "silu_mul";
    case OpKind::kStoreKv:
      return "store_kv";
    case OpKind::kRopeStoreKv:
      return "rope_store_kv";
    case OpKind::kAttentionPrefill:
      return "attention_prefill";
    case OpKind::kAttentionDecode:
      return "attention_decode";
    case OpKind::kSample:
      return "sample";
    case OpKind::kOther:
      return "other";
  }
  return "?";
}

OpTotals Sum(const OpProfile& profile) {
  OpTotals sum;
  for (const OpTotals& totals : profile) {
    sum.seconds += totals.seconds;
    sum.cost.bytes += totals.cost.bytes;
    sum.cost.flops += totals.cost.flops;
    sum.calls += totals.calls;
  }
  return sum;
}

absl::Status ProfilingOps::DoPackWeight(Stream& stream, const PackedMatrix& dst,
                                        std::span<const TensorView> sources,
                                        const TensorView& scales) {
  return Timed(stream, OpKind::kOther, {},
               [&] { return ops_->PackWeight(stream, dst, sources, scales); });
}

absl::Status ProfilingOps::DoEmbedding(Stream& stream, const EmbeddingArgs& args) {
  return Timed(stream, OpKind::kEmbedding, Cost(args),
               [&] { return ops_->Embedding(stream, args); });
}

absl::Status ProfilingOps::DoRmsNorm(Stream& stream, const RmsNormArgs& args) {
  return Timed(stream, OpKind::kRmsNorm, Cost(args), [&] { return ops_->RmsNorm(stream, args); });
}

absl::Status ProfilingOps::DoRope(Stream& stream, const RopeArgs& args) {
  return Timed(stream, OpKind::kRope, Cost(args), [&] { return ops_->Rope(stream, args); });
}

absl::Status ProfilingOps::DoGemm(Stream& stream, const GemmArgs& args) {
  return Timed(stream, OpKind::kGemm, Cost(args), [&] { return ops_->Gemm(stream, args); });
}

absl::Status ProfilingOps::DoSiluMul(Stream& stream, const SiluMulArgs& args) {
  return Timed(stream, OpKind::kSiluMul, Cost(args), [&] { return ops_->SiluMul(stream, args); });
}

absl::Status ProfilingOps::DoStoreKv(Stream& stream, const StoreKvArgs& args) {
  return Timed(stream, OpKind::kStoreKv, Cost(args), [&] { return ops_->StoreKv(stream, args); });
}

absl::Status ProfilingOps::DoRopeStoreKv(Stream& stream, const RopeArgs& rope,
                                         const StoreKvArgs& store) {
  return Timed(stream, OpKind::kRopeStoreKv, Cost(rope, store),
               [&] { return ops_->RopeStoreKv(stream, rope, store); });
}

absl::StatusOr<AttentionPlan> ProfilingOps::DoPlanDecode(Stream& stream,
                                                         const AttentionArgs& args) {
  AttentionPlan plan;
  RETURN_IF_ERROR(Timed(stream, OpKind::kOther, {}, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(plan, ops_->PlanDecode(stream, args));
    return absl::OkStatus();
  }));
  return plan;
}

absl::Status ProfilingOps::DoAttentionPrefill(Stream& stream, const AttentionArgs& args) {
  return Timed(stream, OpKind::kAttentionPrefill, Cost(args),
               [&] { return ops_->AttentionPrefill(stream, args); });
}

absl::Status ProfilingOps::DoAttentionDecode(Stream& stream, const AttentionArgs& args) {
  return Timed(stream, OpKind::kAttentionDecode, Cost(args),
               [&] { return ops_->AttentionDecode(stream, args); });
}

absl::Status ProfilingOps::DoColumnMass(Stream& stream, const ColumnMassArgs& args) {
  return Timed(stream, OpKind::kOther, Cost(args), [&] { return ops_->ColumnMass(stream, args); });
}

absl::Status ProfilingOps::DoCopyBlocks(Stream& stream, const CopyBlocksArgs& args) {
  return Timed(stream, OpKind::kOther, Cost(args), [&] { return ops_->CopyBlocks(stream, args); });
}

absl::Status ProfilingOps::DoCopyTokens(Stream& stream, const CopyTokensArgs& args) {
  return Timed(stream, OpKind::kOther, Cost(args), [&] { return ops_->CopyTokens(stream, args); });
}

absl::Status ProfilingOps::DoGatherBlocks(Stream& stream, const MoveBlocksArgs& args) {
  return Timed(stream, OpKind::kOther, Cost(args),
               [&] { return ops_->GatherBlocks(stream, args); });
}

absl::Status ProfilingOps::DoScatterBlocks(Stream& stream, const MoveBlocksArgs& args) {
  return Timed(stream, OpKind::kOther, Cost(args),
               [&] { return ops_->ScatterBlocks(stream, args); });
}

absl::Status ProfilingOps::DoConvertKv(Stream& stream, const ConvertKvArgs& args) {
  return Timed(stream, OpKind::kOther, Cost(args), [&] { return ops_->ConvertKv(stream, args); });
}

absl::Status ProfilingOps::DoSample(Stream& stream, const SampleArgs& args) {
  return Timed(stream, OpKind::kSample, Cost(args), [&] { return ops_->Sample(stream, args); });
}

}  // namespace tandem
