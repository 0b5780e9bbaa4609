#include "kernels/cpu/ops_cpu.h"

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/panel.h"

namespace tandem {

int64_t CpuOps::PackedBytes(WeightFormat format, int64_t n, int64_t k) const {
  return cpu::PackedBytes(format, n, k);
}

absl::Status CpuOps::DoPackWeight(Stream&, const PackedMatrix& dst,
                                  std::span<const TensorView> sources, const TensorView& scales) {
  return cpu::PackWeight(pool_, dst, sources, scales);
}

absl::Status CpuOps::DoEmbedding(Stream&, const EmbeddingArgs& args) {
  cpu::Embedding(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoRmsNorm(Stream&, const RmsNormArgs& args) {
  cpu::RmsNorm(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoRope(Stream&, const RopeArgs& args) {
  cpu::Rope(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoGemm(Stream&, const GemmArgs& args) {
  cpu::Gemm(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoSiluMul(Stream&, const SiluMulArgs& args) {
  cpu::SiluMul(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoStoreKv(Stream&, const StoreKvArgs& args) {
  cpu::StoreKv(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoRopeStoreKv(Stream&, const RopeArgs& rope, const StoreKvArgs& store) {
  cpu::Rope(pool_, rope);
  cpu::StoreKv(pool_, store);
  return absl::OkStatus();
}

// Planning costs next to nothing beside a layer, so that every call plans by itself.
absl::StatusOr<AttentionPlan> CpuOps::DoPlanPrefill(const AttentionArgs&, StepStaging&) {
  return AttentionPlan();
}

absl::StatusOr<AttentionPlan> CpuOps::DoPlanDecode(Stream&, const AttentionArgs&) {
  return AttentionPlan();
}

absl::Status CpuOps::DoAttentionPrefill(Stream&, const AttentionArgs& args) {
  cpu::AttentionPrefill(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoAttentionDecode(Stream&, const AttentionArgs& args) {
  cpu::AttentionDecode(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoColumnMass(Stream&, const ColumnMassArgs& args) {
  cpu::ColumnMass(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoCopyBlocks(Stream&, const CopyBlocksArgs& args) {
  cpu::CopyBlocks(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoCopyTokens(Stream&, const CopyTokensArgs& args) {
  cpu::CopyTokens(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoGatherBlocks(Stream&, const MoveBlocksArgs& args) {
  cpu::GatherBlocks(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoScatterBlocks(Stream&, const MoveBlocksArgs& args) {
  cpu::ScatterBlocks(pool_, args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoConvertKv(Stream&, const ConvertKvArgs& args) {
  cpu::ConvertKv(args);
  return absl::OkStatus();
}

absl::Status CpuOps::DoSample(Stream&, const SampleArgs& args) { return cpu::Sample(pool_, args); }

}  // namespace tandem
