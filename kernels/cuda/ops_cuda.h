#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/attention/prefill_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/cublaslt_library.h"
#include "kernels/cuda/gemm/products.h"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/call_staging.h"
#include "kernels/cuda/memory/scratch.h"
#include "kernels/cuda/sampling/sampler.h"
#include "kernels/ops.h"

namespace tandem::cuda {

// The CUDA backend: each op queues kernels (launchers.h) on the stream of the call. Matrix
// products, attention and sampling work in memory that this object holds: calls of these on several
// streams must be ordered by events. Arrays of the args that are not yet on the device are
// uploaded, in one copy per call.
class CudaOps final : public Ops {
 public:
  // `device` must outlive this object.
  CudaOps(CudaDevice& device, const CublasLtLibrary& library);

  DType ActivationType(DType weights) const override { return weights; }
  absl::Status Reserve(const WorkLimits& limits) override;
  size_t PlanBytes() const override;
  int64_t PackedBytes(WeightFormat format, int64_t n, int64_t k) const override;

 private:
  absl::Status DoPackWeight(Stream& stream, const PackedMatrix& dst,
                            std::span<const TensorView> sources, const TensorView& scales) override;
  absl::Status DoEmbedding(Stream& stream, const EmbeddingArgs& args) override;
  absl::Status DoRmsNorm(Stream& stream, const RmsNormArgs& args) override;
  absl::Status DoRope(Stream& stream, const RopeArgs& args) override;
  absl::Status DoGemm(Stream& stream, const GemmArgs& args) override;
  absl::Status DoPrepareGemm(const GemmArgs& args) override;
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
  SamplePlan DoPlanSample(std::span<const SampleRow> rows, StepStaging& staging) override;
  absl::Status DoSample(Stream& stream, const SampleArgs& args) override;

  // The device and stream on which a call with `stream` launches its kernels.
  LaunchTarget On(const CudaStream& stream) const;
  // Puts those of `arrays` that lie on the host alone onto the device for the time of the call, and
  // runs `queue` (Status(const LaunchTarget&)), which queues the call's kernels.
  template <class Queue, class... T>
  absl::Status Run(Stream& stream, Queue queue, StagedSpan<T>&... arrays);
  template <class Move>
  absl::Status MoveBlocks(Stream& stream, const MoveBlocksArgs& args, Move move);

  absl::Status QueuePlanDecode(CudaStream& stream, const LaunchTarget& on,
                               const AttentionArgs& args, Scratch& plan);
  absl::Status QueueDecode(CudaStream& stream, const LaunchTarget& on, const AttentionArgs& args);
  // Cuts a prefill into tiles_, in host memory. The work that is returned has the number of tiles
  // and of partial results, but null pointers for both.
  PrefillWork CutPrefill(const AttentionArgs& args);
  absl::StatusOr<PrefillWork> QueueOwnTiles(CudaStream& stream, const AttentionArgs& args);
  absl::Status QueuePrefill(CudaStream& stream, const LaunchTarget& on, const AttentionArgs& args);
  absl::Status ReserveAttention(const WorkLimits& limits);
  DecodeShape ShapeOf(const AttentionArgs& args) const;
  PrefillShape LargestPrefill() const;

  CudaDevice& device_;
  CallStaging staging_;
  Products products_;
  Sampler sampler_;
  WorkLimits limits_;  // as given to the last Reserve

  // Decode plans: one made by PlanDecode, and one for attention calls that were given no plan. The
  // tiles that PlanPrefill makes lie in the step's staging.
  Scratch decode_plan_;
  Scratch own_decode_plan_;
  Scratch decode_partials_;
  PrefillWork prefill_work_ = {};
  Scratch own_prefill_tiles_;
  Scratch prefill_partials_;
  std::vector<PrefillTile> tiles_;  // of the prefill plan being made
  std::vector<int2> items_;         // (layer, block) of the extents being moved
};

template <class Queue, class... T>
absl::Status CudaOps::Run(Stream& stream, Queue queue, StagedSpan<T>&... arrays) {
  auto& cuda_stream = static_cast<CudaStream&>(stream);
  RETURN_IF_ERROR(cuda_stream.Note(cuda_stream.Enter()));
  absl::StatusOr<CallStaging::Call> call =
      staging_.Begin(cuda_stream, (size_t{0} + ... + CallStaging::RoomFor(arrays)));
  if (!call.ok()) return cuda_stream.Note(call.status());
  ((arrays = call->Add(arrays)), ...);
  RETURN_IF_ERROR(call->Upload(cuda_stream));
  RETURN_IF_ERROR(cuda_stream.Note(queue(On(cuda_stream))));
  return call->End(cuda_stream);
}

}  // namespace tandem::cuda
