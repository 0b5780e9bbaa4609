#pragma once

#include "absl/status/status.h"
#include "base/thread_pool.h"
#include "kernels/op_args.h"

// The ops of the CPU backend, one file each. Arguments were validated by Ops (kernels/ops.h).

namespace tandem::cpu {

void Embedding(ThreadPool& pool, const EmbeddingArgs& args);
void RmsNorm(ThreadPool& pool, const RmsNormArgs& args);
void Rope(ThreadPool& pool, const RopeArgs& args);
void Gemm(ThreadPool& pool, const GemmArgs& args);
void SiluMul(ThreadPool& pool, const SiluMulArgs& args);
void StoreKv(ThreadPool& pool, const StoreKvArgs& args);
void AttentionPrefill(ThreadPool& pool, const AttentionArgs& args);
void AttentionDecode(ThreadPool& pool, const AttentionArgs& args);
void ColumnMass(ThreadPool& pool, const ColumnMassArgs& args);
void CopyBlocks(ThreadPool& pool, const CopyBlocksArgs& args);
void CopyTokens(ThreadPool& pool, const CopyTokensArgs& args);
void GatherBlocks(ThreadPool& pool, const MoveBlocksArgs& args);
void ScatterBlocks(ThreadPool& pool, const MoveBlocksArgs& args);
// One row of a quantised pool, as StoreKv writes it: `x` [head_dim], rounded to `bits`.
void QuantiseRow(const float* x, int32_t head_dim, int32_t bits, std::byte* out);
// By the caller alone.
void ConvertKv(const ConvertKvArgs& args);
// INTERNAL naming the row whose logits hold a NaN.
absl::Status Sample(ThreadPool& pool, const SampleArgs& args);

}  // namespace tandem::cpu
