#include "kernels/ops.h"

#include "base/status.h"
#include "kernels/validate.h"

namespace tandem {
namespace {

auto ActivationTypes(const Ops& ops) {
  return [&ops](DType weights) { return ops.ActivationType(weights); };
}

}  // namespace

absl::Status Ops::PackWeight(Stream& stream, const PackedMatrix& dst,
                             std::span<const TensorView> sources, const TensorView& scales) {
  RETURN_IF_ERROR(Annotate(validate::Check(dst, sources, scales), "pack_weight"));
  return DoPackWeight(stream, dst, sources, scales);
}

// A call without work, here as in all ops, is not passed on: no backend has to handle empty
// tensors.
absl::Status Ops::Embedding(Stream& stream, const EmbeddingArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args), "embedding"));
  return args.token_ids.empty() ? absl::OkStatus() : DoEmbedding(stream, args);
}

absl::Status Ops::RmsNorm(Stream& stream, const RmsNormArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args, ActivationTypes(*this)), "rms_norm"));
  return args.x.rows() == 0 ? absl::OkStatus() : DoRmsNorm(stream, args);
}

absl::Status Ops::Rope(Stream& stream, const RopeArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args, ActivationTypes(*this)), "rope"));
  return args.q.rows() == 0 ? absl::OkStatus() : DoRope(stream, args);
}

absl::Status Ops::Gemm(Stream& stream, const GemmArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args, ActivationTypes(*this)), "gemm"));
  return args.x.rows() == 0 ? absl::OkStatus() : DoGemm(stream, args);
}

absl::Status Ops::PrepareGemm(const GemmArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args, ActivationTypes(*this)), "gemm"));
  return args.x.rows() == 0 ? absl::OkStatus() : DoPrepareGemm(args);
}

absl::Status Ops::SiluMul(Stream& stream, const SiluMulArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args, ActivationTypes(*this)), "silu_mul"));
  return args.out.rows() == 0 ? absl::OkStatus() : DoSiluMul(stream, args);
}

absl::Status Ops::StoreKv(Stream& stream, const StoreKvArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args, ActivationTypes(*this)), "store_kv"));
  return args.slots.empty() ? absl::OkStatus() : DoStoreKv(stream, args);
}

absl::Status Ops::RopeStoreKv(Stream& stream, const RopeArgs& rope, const StoreKvArgs& store) {
  RETURN_IF_ERROR(Annotate(validate::Check(rope, ActivationTypes(*this)), "rope"));
  RETURN_IF_ERROR(Annotate(validate::Check(store, ActivationTypes(*this)), "store_kv"));
  if (store.k.data != rope.k.data || store.k.row_stride != rope.k.row_stride) {
    return InvalidArgument("rope_store_kv: the k that is stored must be the k that is rotated");
  }
  return rope.q.rows() == 0 ? absl::OkStatus() : DoRopeStoreKv(stream, rope, store);
}

absl::StatusOr<AttentionPlan> Ops::PlanPrefill(const AttentionArgs& args, StepStaging& staging) {
  RETURN_IF_ERROR(
      Annotate(validate::Check(args, ActivationTypes(*this), validate::QueryRows::kAnyNumber),
               "attention_prefill"));
  if (args.q.rows() == 0) return AttentionPlan();
  return DoPlanPrefill(args, staging);
}

absl::StatusOr<AttentionPlan> Ops::PlanDecode(Stream& stream, const AttentionArgs& args) {
  RETURN_IF_ERROR(
      Annotate(validate::Check(args, ActivationTypes(*this), validate::QueryRows::kOneEach),
               "attention_decode"));
  if (args.q.rows() == 0) return AttentionPlan();
  return DoPlanDecode(stream, args);
}

absl::Status Ops::AttentionPrefill(Stream& stream, const AttentionArgs& args) {
  RETURN_IF_ERROR(
      Annotate(validate::Check(args, ActivationTypes(*this), validate::QueryRows::kAnyNumber),
               "attention_prefill"));
  return args.q.rows() == 0 ? absl::OkStatus() : DoAttentionPrefill(stream, args);
}

absl::Status Ops::AttentionDecode(Stream& stream, const AttentionArgs& args) {
  RETURN_IF_ERROR(
      Annotate(validate::Check(args, ActivationTypes(*this), validate::QueryRows::kOneEach),
               "attention_decode"));
  return args.q.rows() == 0 ? absl::OkStatus() : DoAttentionDecode(stream, args);
}

absl::Status Ops::ColumnMass(Stream& stream, const ColumnMassArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args, ActivationTypes(*this)), "column_mass"));
  return args.out.rows() == 0 ? absl::OkStatus() : DoColumnMass(stream, args);
}

absl::Status Ops::CopyBlocks(Stream& stream, const CopyBlocksArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args), "copy_blocks"));
  return args.pairs.empty() ? absl::OkStatus() : DoCopyBlocks(stream, args);
}

absl::Status Ops::CopyTokens(Stream& stream, const CopyTokensArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args), "copy_tokens"));
  return args.to.empty() ? absl::OkStatus() : DoCopyTokens(stream, args);
}

absl::Status Ops::GatherBlocks(Stream& stream, const MoveBlocksArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args), "gather_blocks"));
  return args.items.empty() ? absl::OkStatus() : DoGatherBlocks(stream, args);
}

absl::Status Ops::ScatterBlocks(Stream& stream, const MoveBlocksArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args), "scatter_blocks"));
  return args.items.empty() ? absl::OkStatus() : DoScatterBlocks(stream, args);
}

absl::Status Ops::ConvertKv(Stream& stream, const ConvertKvArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args), "convert_kv"));
  return args.runs.empty() ? absl::OkStatus() : DoConvertKv(stream, args);
}

SamplePlan Ops::PlanSample(std::span<const SampleRow> rows, StepStaging& staging) {
  return rows.empty() ? SamplePlan() : DoPlanSample(rows, staging);
}

absl::Status Ops::Sample(Stream& stream, const SampleArgs& args) {
  RETURN_IF_ERROR(Annotate(validate::Check(args), "sample"));
  return args.rows.empty() ? absl::OkStatus() : DoSample(stream, args);
}

}  // namespace tandem
