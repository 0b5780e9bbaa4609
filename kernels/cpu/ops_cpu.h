#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace tandem::cpu {

// What weights of bf16 and of 8 bits, and KV of bf16, are multiplied by. A request is computed with
// one or the other from its prompt to its end.
enum class CpuCompute : uint8_t {
  kF32,   // activations as they are
  kBF16,  // activations rounded to bf16; sums are f32. The same bits with and without AVX512_BF16
};

// The CPU backend: each op runs to its end on the caller and the threads of the pool. It is both
// what a machine without an accelerator serves with and what other backends are compared to. The
// members are defined in the files of their ops.
class CpuOps final : public Ops {
 public:
  CpuOps(int num_threads, CpuCompute compute) : compute_(compute), pool_(num_threads) {}

  DType ActivationType(DType) const override { return DType::kF32; }
  // Scratch belongs to the threads that call and grows there.
  absl::Status Reserve(const WorkLimits&) override { return absl::OkStatus(); }
  size_t PlanBytes() const override { return 0; }
  int64_t PackedBytes(WeightFormat format, int64_t n, int64_t k) const override;

 private:
  absl::Status DoPackWeight(Stream& stream, const PackedMatrix& dst,
                            std::span<const TensorView> sources, const TensorView& scales) override;
  absl::Status DoEmbedding(Stream& stream, const EmbeddingArgs& args) override;
  absl::Status DoRmsNorm(Stream& stream, const RmsNormArgs& args) override;
  absl::Status DoRope(Stream& stream, const RopeArgs& args) override;
  absl::Status DoGemm(Stream& stream, const GemmArgs& args) override;
  absl::Status DoPrepareGemm(const GemmArgs&) override { return absl::OkStatus(); }
  absl::Status DoSiluMul(Stream& stream, const SiluMulArgs& args) override;
  absl::Status DoStoreKv(Stream& stream, const StoreKvArgs& args) override;
  absl::Status DoRopeStoreKv(Stream& stream, const RopeArgs& rope,
                             const StoreKvArgs& store) override;
  absl::StatusOr<AttentionPlan> DoPlanPrefill(const AttentionArgs& args,
                                              StepStaging& staging) override;
  absl::StatusOr<AttentionPlan> DoPlanDecode(Stream& stream, const AttentionArgs& args) override;
  absl::Status DoAttentionPrefill(Stream& stream, const AttentionArgs& args) override;
  absl::Status DoAttentionDecode(Stream& stream, const AttentionArgs& args) override;
  absl::Status DoColumnMass(Stream& stream, const ColumnMassArgs& args) override;
  absl::Status DoCopyBlocks(Stream& stream, const CopyBlocksArgs& args) override;
  absl::Status DoCopyTokens(Stream& stream, const CopyTokensArgs& args) override;
  absl::Status DoGatherBlocks(Stream& stream, const MoveBlocksArgs& args) override;
  absl::Status DoScatterBlocks(Stream& stream, const MoveBlocksArgs& args) override;
  absl::Status DoConvertKv(Stream& stream, const ConvertKvArgs& args) override;
  SamplePlan DoPlanSample(std::span<const SampleRow>, StepStaging&) override { return {}; }
  absl::Status DoSample(Stream& stream, const SampleArgs& args) override;

  const CpuCompute compute_;
  ThreadPool pool_;
};

}  // namespace tandem::cpu
