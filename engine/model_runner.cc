#include "engine/model_runner.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "model/transformer/sampler.h"
#include "spdlog/spdlog.h"

namespace tandem {

ModelRunner::ModelRunner(Transformer& transformer, Ops& ops, KvStore& store, const Device& device,
                         Stream& stream)
    : transformer_(transformer),
      ops_(ops),
      store_(store),
      stream_(stream),
      runs_later_(!device.is_host()) {}

absl::StatusOr<bool> ModelRunner::WarmUp(DecodeSteps decodes) {
  const auto began = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const bool last, WarmUpPart(decodes));
  warming_up_->took += std::chrono::steady_clock::now() - began;
  if (last) {
    spdlog::info("warmed up graphs={} took_ms={:.0f}", warming_up_->recorded,
                 ToMilliseconds(warming_up_->took));
  }
  return last;
}

absl::StatusOr<bool> ModelRunner::WarmUpPart(DecodeSteps decodes) {
  if (!warming_up_) {
    warming_up_ = WarmUpState{};
    warming_up_->products = transformer_.product_rows();
    if (decodes == DecodeSteps::kRecorded) warming_up_->sizes = transformer_.decode_sizes();
  }
  if (warming_up_->prepared < warming_up_->products.size()) {
    for (const int32_t rows : NextProducts()) {
      RETURN_IF_ERROR(transformer_.PrepareProducts(rows));
    }
    return false;
  }
  if (warming_up_->recorded < warming_up_->sizes.size()) {
    const int32_t size = warming_up_->sizes[warming_up_->recorded];
    RETURN_IF_ERROR(transformer_.RecordDecodes(stream_, store_.view(), size));
    ++warming_up_->recorded;
    return false;
  }
  RETURN_IF_ERROR(RunForNobody());
  return true;
}

// As many as take some tens of milliseconds.
std::span<const int32_t> ModelRunner::NextProducts() {
  constexpr size_t kAtOnce = 64;
  const auto left = std::span(warming_up_->products).subspan(warming_up_->prepared);
  const auto next = left.first(std::min(left.size(), kAtOnce));
  warming_up_->prepared += next.size();
  return next;
}

// Stores nothing, and sees whatever the pool holds: nobody looks at what comes of it.
absl::Status ModelRunner::RunForNobody() {
  constexpr int32_t kTokens = 64;
  const KvPoolView pool = store_.view();
  const Transformer::Limits& limits = transformer_.limits();
  const int32_t count = std::min(
      {kTokens, limits.max_tokens, limits.max_context_tokens, pool.block_tokens * pool.num_blocks});
  token_ids_.assign(static_cast<size_t>(count), 0);
  positions_.resize(token_ids_.size());
  std::iota(positions_.begin(), positions_.end(), 0);
  slots_.assign(token_ids_.size(), -1);
  query_starts_ = {0, count};
  context_lens_ = {count};
  block_ids_.resize(static_cast<size_t>((count + pool.block_tokens - 1) / pool.block_tokens));
  std::iota(block_ids_.begin(), block_ids_.end(), 0);
  table_starts_ = {0, static_cast<int32_t>(block_ids_.size())};
  logit_rows_ = {count - 1};
  sample_rows_ = {{.temperature = 1, .top_p = 0.9f}};
  ASSIGN_OR_RETURN(logits_, transformer_.Forward(stream_, Batch(0), pool, nullptr));
  SampleRows().IgnoreError();
  return stream_.Synchronize();
}

absl::Status ModelRunner::Forward(std::span<const Chunk> chunks, int32_t num_decodes,
                                  const LayerStored& layer_stored) {
  layer_stored_ = &layer_stored;
  layers_.clear();
  absl::Status status = Queue(chunks, num_decodes);
  copies_.Clear();
  // Its blocks may go to others, whose KV comes by other ways than this stream.
  if (!status.ok()) stream_.Synchronize().IgnoreError();
  return status;
}

absl::Status ModelRunner::Queue(std::span<const Chunk> chunks, int32_t num_decodes) {
  RETURN_IF_ERROR(MakeRoom(chunks));
  BuildBatch(chunks);
  const bool told_later = runs_later_ && *layer_stored_ != nullptr;
  const LayerStored record = [this](int32_t) { layers_.push_back(stream_.Record()); };
  ASSIGN_OR_RETURN(logits_, transformer_.Forward(stream_, Batch(num_decodes), store_.view(),
                                                 told_later ? record : *layer_stored_));
  return absl::OkStatus();
}

absl::Status ModelRunner::Await() {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    RETURN_IF_ERROR(layers_[layer].status());
    RETURN_IF_ERROR((*layers_[layer])->Synchronize());
    (*layer_stored_)(static_cast<int32_t>(layer));
  }
  layers_.clear();
  return stream_.Synchronize();
}

absl::Status ModelRunner::MakeRoom(std::span<const Chunk> chunks) {
  for (const Chunk& chunk : chunks) {
    BlockTable& table = chunk.table();
    const absl::Status reserved = store_.Reserve(table, chunk.end());
    TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
    RETURN_IF_ERROR(store_.MakeWritable(table, chunk.begin, chunk.end(), copies_));
  }
  return absl::OkStatus();
}

void ModelRunner::BuildBatch(std::span<const Chunk> chunks) {
  token_ids_.clear();
  positions_.clear();
  slots_.clear();
  query_starts_.assign(1, 0);
  context_lens_.clear();
  logit_rows_.clear();
  sample_rows_.clear();
  block_ids_.clear();
  table_starts_.assign(1, 0);
  for (const Chunk& chunk : chunks) AppendChunk(chunk);
}

void ModelRunner::AppendChunk(const Chunk& chunk) {
  const BlockTable& table = chunk.table();
  for (int32_t position = chunk.begin; position < chunk.end(); ++position) {
    token_ids_.push_back(chunk.tokens()[static_cast<size_t>(position)]);
    positions_.push_back(position);
    slots_.push_back(table.Slot(position));
  }
  query_starts_.push_back(static_cast<int32_t>(token_ids_.size()));
  context_lens_.push_back(chunk.end());
  const std::span<const int32_t> blocks = table.block_ids();
  block_ids_.insert(block_ids_.end(), blocks.begin(), blocks.end());
  table_starts_.push_back(static_cast<int32_t>(block_ids_.size()));
  // Sampling changes the logits, so each of several choices gets its own.
  logit_rows_.insert(logit_rows_.end(), static_cast<size_t>(chunk.samples),
                     static_cast<int32_t>(token_ids_.size()) - 1);
  AppendSampleRows(chunk);
}

ForwardBatch ModelRunner::Batch(int32_t num_decodes) {
  return {.token_ids = token_ids_,
          .positions = positions_,
          .slots = slots_,
          .query_starts = query_starts_,
          .context_lens = context_lens_,
          .block_tables = {.ids = block_ids_, .starts = table_starts_},
          .copies = copies_.pairs,
          .num_decodes = num_decodes,
          .logit_rows = logit_rows_,
          .sample_rows = sample_rows_};
}

std::span<absl::StatusOr<SampledToken>> ModelRunner::Sample(std::span<const Chunk> chunks) {
  results_.clear();
  const absl::Status status = SampleRows();
  if (status.ok()) {
    for (SampledToken& token : sampled_) results_.emplace_back(std::move(token));
    return results_;
  }
  // One row's fault must not end the others' requests.
  for (const Chunk& chunk : chunks) {
    if (chunk.samples > 0) SampleAlone(chunk);
  }
  return results_;
}

absl::Status ModelRunner::SampleRows() {
  sampled_.assign(sample_rows_.size(), SampledToken{});
  if (sample_rows_.empty()) return absl::OkStatus();
  return ops_.Sample(stream_, {.logits = logits_,
                               .rows = sample_rows_,
                               .out = sampled_,
                               .plan = transformer_.sample_plan()});
}

void ModelRunner::AppendSampleRows(const Chunk& chunk) {
  if (chunk.samples == 0) return;
  const Sequence& sequence = *chunk.sequence;
  const RequestState& request = sequence.request;
  if (request.search) {
    // Greedy, for its most probable tokens.
    SampleRow row;
    row.position = chunk.end();
    row.num_logprobs = request.search->candidates_per_beam();
    sample_rows_.push_back(row);
    return;
  }
  SamplingParams params = request.spec.sampling;
  for (int32_t i = 0; i < chunk.samples; ++i) {
    params.seed = chunk.samples > 1 ? ChoiceSeed(request.spec.sampling.seed, i) : sequence.seed;
    sample_rows_.push_back(MakeSampleRow(params, chunk.end(), request.spec.prompt,
                                         sequence.OutputOf(sequence.rows[chunk.row])));
  }
}

// The failed call may have changed the logits, so they are computed anew: a pass over the last
// token alone, whose KV is in the pool already and is not stored again (a peer may be reading it).
// The result is the same where a row does not depend on its batch (P2), and as good elsewhere.
void ModelRunner::SampleAlone(const Chunk& chunk) {
  Chunk last = chunk;
  last.begin = chunk.end() - 1;
  last.count = 1;
  BuildBatch({&last, 1});
  slots_.assign(1, -1);
  absl::StatusOr<TensorView> logits =
      transformer_.Forward(stream_, Batch(1), store_.view(), nullptr);
  absl::Status status = logits.status();
  if (status.ok()) {
    logits_ = *logits;
    status = SampleRows();
  }
  for (int32_t i = 0; i < chunk.samples; ++i) {
    results_.push_back(status.ok() ? absl::StatusOr<SampledToken>(std::move(sampled_[i])) : status);
  }
}

}  // namespace tandem
