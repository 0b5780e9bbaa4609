#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/op_args.h"

namespace tandem {

// Everything that a forward pass computes. Each public call checks shapes, dtypes and ranges once
// for all backends (INVALID_ARGUMENT names the argument, what it is and what it must be), then
// hands over to the backend. Batch-invariant (P2): what is computed for one row depends on that
// row and its context alone, not on the other rows, the chunking or the number of threads.
// Thread: one at a time. Work beside it, as packing beside forward passes, has its own instance.
class Ops {
 public:
  virtual ~Ops() = default;

  // Bytes of a packed weight [n, k].
  virtual int64_t PackedBytes(DType dtype, int64_t n, int64_t k) const = 0;
  // Packs `sources`, each [n_i, k] row-major of dst.dtype, stacked in order: sum(n_i) = dst.n.
  absl::Status PackWeight(Stream& stream, const PackedMatrix& dst,
                          std::span<const TensorView> sources);

  absl::Status Embedding(Stream& stream, const EmbeddingArgs& args);
  absl::Status RmsNorm(Stream& stream, const RmsNormArgs& args);
  absl::Status Rope(Stream& stream, const RopeArgs& args);
  absl::Status Gemm(Stream& stream, const GemmArgs& args);
  absl::Status SiluMul(Stream& stream, const SiluMulArgs& args);
  absl::Status StoreKv(Stream& stream, const StoreKvArgs& args);
  absl::Status AttentionPrefill(Stream& stream, const AttentionArgs& args);
  // As prefill, every q_len 1: spread over the context rather than over the queries.
  absl::Status AttentionDecode(Stream& stream, const AttentionArgs& args);
  absl::Status CopyBlocks(Stream& stream, const CopyBlocksArgs& args);
  absl::Status GatherBlocks(Stream& stream, const MoveBlocksArgs& args);
  absl::Status ScatterBlocks(Stream& stream, const MoveBlocksArgs& args);
  absl::Status Sample(Stream& stream, const SampleArgs& args);

 private:
  virtual absl::Status DoPackWeight(Stream& stream, const PackedMatrix& dst,
                                    std::span<const TensorView> sources) = 0;
  virtual absl::Status DoEmbedding(Stream& stream, const EmbeddingArgs& args) = 0;
  virtual absl::Status DoRmsNorm(Stream& stream, const RmsNormArgs& args) = 0;
  virtual absl::Status DoRope(Stream& stream, const RopeArgs& args) = 0;
  virtual absl::Status DoGemm(Stream& stream, const GemmArgs& args) = 0;
  virtual absl::Status DoSiluMul(Stream& stream, const SiluMulArgs& args) = 0;
  virtual absl::Status DoStoreKv(Stream& stream, const StoreKvArgs& args) = 0;
  virtual absl::Status DoAttentionPrefill(Stream& stream, const AttentionArgs& args) = 0;
  virtual absl::Status DoAttentionDecode(Stream& stream, const AttentionArgs& args) = 0;
  virtual absl::Status DoCopyBlocks(Stream& stream, const CopyBlocksArgs& args) = 0;
  virtual absl::Status DoGatherBlocks(Stream& stream, const MoveBlocksArgs& args) = 0;
  virtual absl::Status DoScatterBlocks(Stream& stream, const MoveBlocksArgs& args) = 0;
  virtual absl::Status DoSample(Stream& stream, const SampleArgs& args) = 0;
};

}  // namespace tandem
