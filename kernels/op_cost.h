#pragma once

#include "kernels/op_args.h"

// What an op must at least move and compute: bytes read and written once each, multiplies and adds
// counted apart. A lower bound, so that a rate computed from it is honest.

namespace tandem {

struct OpCost {
  double bytes = 0;
  double flops = 0;
};

OpCost Cost(const EmbeddingArgs& a);
OpCost Cost(const RmsNormArgs& a);
OpCost Cost(const RopeArgs& a);
OpCost Cost(const GemmArgs& a);
OpCost Cost(const SiluMulArgs& a);
OpCost Cost(const StoreKvArgs& a);
// Rope and StoreKv in one pass: the rotated k is not read again.
OpCost Cost(const RopeArgs& rope, const StoreKvArgs& store);
// Attention: counts the visible (query, key) pairs alone, and each visible K and V once per KV
// head.
OpCost Cost(const AttentionArgs& a);
// Column mass: reads the visible K once.
OpCost Cost(const ColumnMassArgs& a);
OpCost Cost(const CopyBlocksArgs& a);
OpCost Cost(const CopyTokensArgs& a);
OpCost Cost(const MoveBlocksArgs& a);
OpCost Cost(const ConvertKvArgs& a);
// Sampling: one pass over the logits; what a row's filters add is not counted.
OpCost Cost(const SampleArgs& a);

}  // namespace tandem
