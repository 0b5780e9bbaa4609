#pragma once

#include <cstdint>
#include <span>

#include "kernels/op_args.h"
#include "model/transformer/kv_rounder.h"

namespace tandem {

// Rows [first, first + count) of a step.
struct RowRange {
  int32_t first = 0;
  int32_t count = 0;
};

// How much attention each token of a sequence's context gets from rows of this step.
struct MassRequest {
  int32_t sequence = 0;  // index in the batch; has several rows
  // The rows that count, and their weights: as in ColumnMassArgs.
  int32_t last_rows = 0;
  int32_t rows_behind = 0;
  float decay = 1;
  // [layers, Hkv, context_lens[sequence]], memory of Device::AllocateHost; filled when the pass has
  // ended.
  std::span<float> out;
};

// The ragged batch of one step: first the sequences with several query rows (prefill chunks), then
// `num_decodes` sequences with one row each. The caller owns all spans during the call.
struct ForwardBatch {
  std::span<const int32_t> token_ids;     // [T]
  std::span<const int32_t> positions;     // [T]
  std::span<const int64_t> slots;         // [T] as in StoreKvArgs
  std::span<const int32_t> query_starts;  // [S + 1]
  std::span<const int32_t> context_lens;  // [S], including the tokens of this step
  BlockTables block_tables;               // block tables of the S sequences
  std::span<const BlockPair> copies;      // block copies that run first; at most T
  std::span<const RoundedRows> rounded;   // chunk rows whose KV is rounded to a narrower dtype
  int32_t num_decodes = 0;                // the number of decodes, which are the last sequences
  // [R] the rows whose logits are needed, in rising order. A repeated row is computed once and
  // copied, because sampling overwrites logits.
  std::span<const int32_t> logit_rows;
  // Rows whose logits will be asked for later, piece by piece (Transformer::Logits): disjoint
  // ranges in rising order.
  std::span<const RowRange> scored;
  std::span<const MassRequest> masses;  // valid until the pass has been queued
  // [R] how the logits will be sampled; it is uploaded with the step's arrays. May be empty, then
  // Ops::Sample uploads it.
  std::span<const SampleRow> sample_rows;
};

// The largest steps that a Transformer is made for.
struct TransformerLimits {
  int32_t max_tokens = 0;      // T of one step
  int32_t max_logit_rows = 0;  // R of one step
  int32_t max_sequences = 0;   // S of one step
  int32_t max_blocks_per_sequence = 0;
  int32_t max_context_tokens = 0;  // number of possible token positions
  SplitMode splits = SplitMode::kBalanced;
};

}  // namespace tandem
