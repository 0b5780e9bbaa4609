#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/op_args.h"
#include "kernels/step_staging.h"

namespace tandem {

// The sizes that no call of a user of Ops exceeds.
struct WorkLimits {
  int32_t max_tokens = 0;      // T
  int32_t max_sequences = 0;   // S
  int32_t max_logit_rows = 0;  // R
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t vocab_size = 0;
  int32_t max_context_tokens = 0;  // of any one sequence
  int64_t max_total_tokens = 0;    // contexts of all sequences together
  SplitMode splits = SplitMode::kBalanced;
  bool has_coded_weights = false;  // some weights are codes (weight_format.h)
};

// Everything that a forward pass computes. Each public call checks shapes, dtypes and ranges once
// for all backends (INVALID_ARGUMENT names the argument, what it is and what it must be), then
// calls the backend. Batch-invariant (P2): what is computed for one row depends on that row and its
// context alone, not on the other rows, the chunking or the number of threads. On CUDA large matrix
// products are the exception, since a library computes them (docs/cuda.md). Thread: one at a time.
// Concurrent work, such as packing beside forward passes, has its own instance. Only ConvertKv may
// be called by any thread, with a stream of its own, as it keeps no state.
class Ops {
 public:
  virtual ~Ops() = default;

  // The type in which activations between two matrices of type `weights` are best kept: one that
  // ops take as `act` beside f32. CPU: f32.
  virtual DType ActivationType(DType weights) const = 0;
  // Allocates the memory that calls within `limits` need, so that none of them allocates. Without
  // this, or beyond the limits, memory grows as calls need it; Sample also grows it to upload rows
  // that were not planned. RESOURCE_EXHAUSTED with the size.
  virtual absl::Status Reserve(const WorkLimits& limits) = 0;
  // Bytes that PlanPrefill and PlanSample of one step within the reserved limits add to its
  // staging.
  virtual size_t PlanBytes() const = 0;

  // Bytes of a packed weight [n, k].
  virtual int64_t PackedBytes(WeightFormat format, int64_t n, int64_t k) const = 0;
  // Packs `sources`, each [n_i, k] row-major, stacked in order: sum(n_i) = dst.n. They are of the
  // type of dst.format; codes come with `scales` [dst.n, groups of 32 of k] f32, finite and not
  // negative, which are rounded to bf16. int8 also takes f32, f16 or bf16, all of one type, and
  // quantises them. INVALID_ARGUMENT where a float, including an 8-bit one, is infinite or NaN.
  // Sources may lie on the host, and may be freed once the stream has been synchronized.
  absl::Status PackWeight(Stream& stream, const PackedMatrix& dst,
                          std::span<const TensorView> sources, const TensorView& scales = {});

  absl::Status Embedding(Stream& stream, const EmbeddingArgs& args);
  absl::Status RmsNorm(Stream& stream, const RmsNormArgs& args);
  absl::Status Rope(Stream& stream, const RopeArgs& args);
  absl::Status Gemm(Stream& stream, const GemmArgs& args);
  // Chooses ahead how Gemm will compute with such arguments, where that choice takes time. Nothing
  // is computed.
  absl::Status PrepareGemm(const GemmArgs& args);
  absl::Status SiluMul(Stream& stream, const SiluMulArgs& args);
  absl::Status StoreKv(Stream& stream, const StoreKvArgs& args);
  // Rope, then StoreKv of the rotated k, in one pass where the backend can.
  absl::Status RopeStoreKv(Stream& stream, const RopeArgs& rope, const StoreKvArgs& store);
  // Plans a prefill. Adds what the plan needs on the device to `staging`, which is uploaded with
  // the step's arrays.
  absl::StatusOr<AttentionPlan> PlanPrefill(const AttentionArgs& args, StepStaging& staging);
  absl::StatusOr<AttentionPlan> PlanDecode(Stream& stream, const AttentionArgs& args);
  absl::Status AttentionPrefill(Stream& stream, const AttentionArgs& args);
  // As AttentionPrefill with every q_len 1, but in parallel over the context rather than over the
  // queries.
  absl::Status AttentionDecode(Stream& stream, const AttentionArgs& args);
  absl::Status ColumnMass(Stream& stream, const ColumnMassArgs& args);
  absl::Status CopyBlocks(Stream& stream, const CopyBlocksArgs& args);
  absl::Status CopyTokens(Stream& stream, const CopyTokensArgs& args);
  absl::Status GatherBlocks(Stream& stream, const MoveBlocksArgs& args);
  absl::Status ScatterBlocks(Stream& stream, const MoveBlocksArgs& args);
  absl::Status ConvertKv(Stream& stream, const ConvertKvArgs& args);
  // Adds what `rows` ask for to `staging`, which is uploaded with the step's arrays. Sample checks
  // the rows.
  SamplePlan PlanSample(std::span<const SampleRow> rows, StepStaging& staging);
  // Samples a token per row; returns when `args.out` is filled.
  absl::Status Sample(Stream& stream, const SampleArgs& args);

 private:
  virtual absl::Status DoPackWeight(Stream& stream, const PackedMatrix& dst,
                                    std::span<const TensorView> sources,
                                    const TensorView& scales) = 0;
  virtual absl::Status DoEmbedding(Stream& stream, const EmbeddingArgs& args) = 0;
  virtual absl::Status DoRmsNorm(Stream& stream, const RmsNormArgs& args) = 0;
  virtual absl::Status DoRope(Stream& stream, const RopeArgs& args) = 0;
  virtual absl::Status DoGemm(Stream& stream, const GemmArgs& args) = 0;
  virtual absl::Status DoPrepareGemm(const GemmArgs& args) = 0;
  virtual absl::Status DoSiluMul(Stream& stream, const SiluMulArgs& args) = 0;
  virtual absl::Status DoStoreKv(Stream& stream, const StoreKvArgs& args) = 0;
  virtual absl::Status DoRopeStoreKv(Stream& stream, const RopeArgs& rope,
                                     const StoreKvArgs& store) = 0;
  virtual absl::StatusOr<AttentionPlan> DoPlanPrefill(const AttentionArgs& args,
                                                      StepStaging& staging) = 0;
  virtual absl::StatusOr<AttentionPlan> DoPlanDecode(Stream& stream, const AttentionArgs& args) = 0;
  virtual absl::Status DoAttentionPrefill(Stream& stream, const AttentionArgs& args) = 0;
  virtual absl::Status DoAttentionDecode(Stream& stream, const AttentionArgs& args) = 0;
  virtual absl::Status DoColumnMass(Stream& stream, const ColumnMassArgs& args) = 0;
  virtual absl::Status DoCopyBlocks(Stream& stream, const CopyBlocksArgs& args) = 0;
  virtual absl::Status DoCopyTokens(Stream& stream, const CopyTokensArgs& args) = 0;
  virtual absl::Status DoGatherBlocks(Stream& stream, const MoveBlocksArgs& args) = 0;
  virtual absl::Status DoScatterBlocks(Stream& stream, const MoveBlocksArgs& args) = 0;
  virtual absl::Status DoConvertKv(Stream& stream, const ConvertKvArgs& args) = 0;
  virtual SamplePlan DoPlanSample(std::span<const SampleRow> rows, StepStaging& staging) = 0;
  virtual absl::Status DoSample(Stream& stream, const SampleArgs& args) = 0;
};

}  // namespace tandem
