#include "engine/step_batch.h"

#include <algorithm>
#include <numeric>

#include "engine/step_chunks.h"
#include "model/transformer/sampler.h"

namespace tandem {

void StepBatch::Clear() {
  token_ids_.clear();
  positions_.clear();
  slots_.clear();
  rounded_.clear();
  query_starts_.assign(1, 0);
  context_lens_.clear();
  logit_rows_.clear();
  scored_.clear();
  sample_rows_.clear();
  num_excluded_ = 0;
  block_ids_.clear();
  table_starts_.assign(1, 0);
}

// Notes the rows of a prompt that a preempted request computes again after a prefill worker had
// computed them first: they are rounded as that worker's KV was, so that the same tokens follow
// (P2). The tokens behind the prompt were never rounded.
void StepBatch::AppendRounded(const Chunk& chunk) {
  const RequestState& request = chunk.sequence->request;
  const int32_t num_rows = std::min(chunk.end(), request.prompt_tokens()) - chunk.begin;
  const std::optional<DType> dtype = request.sent_dtype();
  if (!dtype || num_rows <= 0) return;
  rounded_.push_back({.first_row = static_cast<int32_t>(token_ids_.size()),
                      .num_rows = num_rows,
                      .dtype = *dtype});
}

void StepBatch::Append(const Chunk& chunk) {
  AppendRounded(chunk);
  const BlockTable& table = chunk.table();
  for (int32_t position = chunk.begin; position < chunk.end(); ++position) {
    token_ids_.push_back(chunk.tokens()[static_cast<size_t>(position)]);
    positions_.push_back(position);
    slots_.push_back(table.Slot(position - chunk.sequence->evicted_tokens));
  }
  query_starts_.push_back(static_cast<int32_t>(token_ids_.size()));
  context_lens_.push_back(chunk.slots_end());
  const std::span<const int32_t> blocks = table.block_ids();
  block_ids_.insert(block_ids_.end(), blocks.begin(), blocks.end());
  table_starts_.push_back(static_cast<int32_t>(block_ids_.size()));
  // Sampling changes the logits, so each of several choices gets a row of its own.
  logit_rows_.insert(logit_rows_.end(), static_cast<size_t>(chunk.samples),
                     static_cast<int32_t>(token_ids_.size()) - 1);
  if (chunk.num_scored > 0) scored_.push_back(scored_rows(chunk, context_lens_.size() - 1));
  AppendSampleRows(chunk);
}

ForwardBatch StepBatch::view(int32_t num_decodes, std::span<const BlockPair> copies,
                             std::span<const MassRequest> masses) const {
  return {.token_ids = token_ids_,
          .positions = positions_,
          .slots = slots_,
          .query_starts = query_starts_,
          .context_lens = context_lens_,
          .block_tables = {.ids = block_ids_, .starts = table_starts_},
          .copies = copies,
          .rounded = rounded_,
          .num_decodes = num_decodes,
          .logit_rows = logit_rows_,
          .scored = scored_,
          .masses = masses,
          .sample_rows = sample_rows_};
}

void StepBatch::AppendSampleRows(const Chunk& chunk) {
  if (chunk.samples == 0) return;
  const Sequence& sequence = *chunk.sequence;
  const RequestState& request = sequence.request;
  if (request.search) {
    // A beam search samples greedily, just to get the most probable tokens.
    SampleRow row;
    row.position = chunk.end();
    row.num_logprobs = request.search->candidates_per_beam();
    sample_rows_.push_back(row);
    return;
  }
  SamplingParams params = request.spec.sampling;
  const std::span<const int32_t> output = sequence.OutputOf(sequence.rows[chunk.row]);
  for (int32_t i = 0; i < chunk.samples; ++i) {
    params.seed = SeedOf(chunk, i);
    sample_rows_.push_back(MakeSampleRow(params, chunk.end(), request.spec.prompt, output));
    Constrain(request.spec, output, sample_rows_.back());
  }
}

// Adds the request's constraints to a row, which points into the request and into excluded_. A list
// in excluded_ stays where it is while others are added, because only its handle moves.
void StepBatch::Constrain(const EngineRequest& request, std::span<const int32_t> output,
                          SampleRow& row) {
  const TokenConstraints& constraints = request.constraints;
  row.biases = constraints.logit_bias;
  row.allowed_ids = constraints.allowed_token_ids;
  row.given_token = constraints.ForcedAfter(output.size());
  if (!constraints.ExcludesAfter(output.size())) return;
  if (num_excluded_ == excluded_.size()) excluded_.emplace_back();
  std::vector<int32_t>& excluded = excluded_[num_excluded_++];
  excluded.clear();
  constraints.AppendExcluded(output, request.stop_token_ids, excluded);
  row.excluded_ids = excluded;
}

void StepBatch::AssignLastToken(const Chunk& chunk) {
  Chunk last = chunk;
  last.begin = chunk.end() - 1;
  last.count = 1;
  last.num_scored = 0;
  Clear();
  Append(last);
  slots_.assign(1, -1);
  rounded_.clear();
}

void StepBatch::AssignDummy(int32_t count, int32_t block_tokens) {
  Clear();
  token_ids_.assign(static_cast<size_t>(count), 0);
  positions_.resize(token_ids_.size());
  std::iota(positions_.begin(), positions_.end(), 0);
  slots_.assign(token_ids_.size(), -1);
  query_starts_ = {0, count};
  context_lens_ = {count};
  block_ids_.resize(static_cast<size_t>((count + block_tokens - 1) / block_tokens));
  std::iota(block_ids_.begin(), block_ids_.end(), 0);
  table_starts_ = {0, static_cast<int32_t>(block_ids_.size())};
  logit_rows_ = {count - 1};
  sample_rows_ = {{.temperature = 1, .top_p = 0.9f}};
}

}  // namespace tandem
