#include "engine/model_runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/step_chunks.h"
#include "kvstore/token_eviction/select_tokens.h"

namespace tandem {

ModelRunner::ModelRunner(Transformer& transformer, Ops& ops, KvStore& store, Device& device,
                         Stream& stream)
    : transformer_(transformer),
      ops_(ops),
      store_(store),
      stream_(stream),
      runs_later_(!device.is_host()),
      scores_(device) {}

absl::StatusOr<bool> ModelRunner::WarmUp(DecodeSteps decodes) {
  const auto began = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const bool last, WarmUpPart(decodes));
  warming_up_->took += std::chrono::steady_clock::now() - began;
  if (last) {
    LogInfo("warmed up graphs={} took_ms={:.0f}", warming_up_->recorded,
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
  RETURN_IF_ERROR(RunDummyStep());
  return true;
}

// The next numbers of rows for which to prepare matrix products: as many as take some tens of
// milliseconds.
std::span<const int32_t> ModelRunner::NextProducts() {
  constexpr size_t kAtOnce = 64;
  const auto left = std::span(warming_up_->products).subspan(warming_up_->prepared);
  const auto next = left.first(std::min(left.size(), kAtOnce));
  warming_up_->prepared += next.size();
  return next;
}

// Runs a step that stores nothing, to load kernels. It reads whatever the pool holds, and its
// results are not used.
absl::Status ModelRunner::RunDummyStep() {
  constexpr int32_t kTokens = 64;
  const KvPoolView pool = store_.view();
  const Transformer::Limits& limits = transformer_.limits();
  const int32_t count = std::min(
      {kTokens, limits.max_tokens, limits.max_context_tokens, pool.block_tokens * pool.num_blocks});
  batch_.AssignDummy(count, pool.block_tokens);
  ASSIGN_OR_RETURN(logits_,
                   transformer_.Forward(stream_, batch_.view(0, copies_.pairs, {}), pool, nullptr));
  SampleRows().IgnoreError();
  return stream_.Synchronize();
}

absl::Status ModelRunner::Forward(std::span<const Chunk> chunks, int32_t num_decodes,
                                  const LayerStored& layer_stored) {
  layer_stored_ = &layer_stored;
  layers_.clear();
  absl::Status status = Queue(chunks, num_decodes);
  copies_.Clear();
  // Waits for what was queued before the error: the step's blocks may be given to other sequences,
  // whose KV is not written on this stream alone.
  if (!status.ok()) stream_.Synchronize().IgnoreError();
  return status;
}

absl::Status ModelRunner::Queue(std::span<const Chunk> chunks, int32_t num_decodes) {
  RETURN_IF_ERROR(MakeRoom(chunks, store_, copies_));
  RETURN_IF_ERROR(scores_.Plan(chunks, store_.layout()));
  batch_.Clear();
  for (const Chunk& chunk : chunks) batch_.Append(chunk);
  const bool told_later = runs_later_ && *layer_stored_ != nullptr;
  const LayerStored record = [this](int32_t) { layers_.push_back(stream_.Record()); };
  ASSIGN_OR_RETURN(
      logits_,
      transformer_.Forward(stream_, batch_.view(num_decodes, copies_.pairs, scores_.requests()),
                           store_.view(), told_later ? record : *layer_stored_));
  return absl::OkStatus();
}

absl::Status ModelRunner::Await() {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    RETURN_IF_ERROR(layers_[layer].status());
    RETURN_IF_ERROR((*layers_[layer])->Synchronize());
    (*layer_stored_)(static_cast<int32_t>(layer));
  }
  layers_.clear();
  RETURN_IF_ERROR(stream_.Synchronize());
  scores_.Collect();
  return absl::OkStatus();
}

// Copies the KV of the tokens that are kept, output that was decoded before a preemption included.
// Waits for the copies, because their source blocks are freed afterwards.
absl::Status ModelRunner::Evict(const Sequence& sequence) {
  const PendingEviction& pending = *sequence.eviction;
  const int32_t prompt = sequence.request.prompt_tokens();
  const auto count = static_cast<size_t>(sequence.num_kept());
  const int32_t heads = store_.layout().num_kv_heads;
  std::vector<int32_t> from;
  for (int32_t i = 0; i < store_.layout().num_layers * heads; ++i) {
    const int32_t layer = i / heads;
    const int32_t head = i % heads;
    std::vector<int32_t> kept =
        SelectTokens(*sequence.request.eviction(), layer, head, prompt,
                     pending.scores.Of(layer, head).first(static_cast<size_t>(prompt)));
    for (int32_t token = prompt; token < sequence.num_tokens(); ++token) kept.push_back(token);
    TANDEM_CHECK(kept.size() == count, "KV heads keep different numbers of tokens");
    for (const int32_t token : kept) {
      from.push_back(static_cast<int32_t>(sequence.tables.front().Slot(token)));
    }
  }
  std::vector<int32_t> to(count);
  for (size_t i = 0; i < count; ++i) {
    to[i] = static_cast<int32_t>(pending.kept.Slot(static_cast<int64_t>(i)));
  }
  RETURN_IF_ERROR(ops_.CopyTokens(stream_, {.pool = store_.view(), .from = from, .to = to}));
  return stream_.Synchronize();
}

std::span<absl::StatusOr<SampledToken>> ModelRunner::Sample(std::span<const Chunk> chunks) {
  results_.clear();
  scored_.clear();
  const absl::Status status = SampleRows();
  // Prompts are scored first, because SampleAlone runs other passes, which replace the rows of this
  // one.
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].num_scored == 0) continue;
    scored_.push_back(Score(chunks[i], batch_.scored_rows(chunks[i], i)));
  }
  if (status.ok()) {
    for (SampledToken& token : sampled_) results_.emplace_back(std::move(token));
    return results_;
  }
  // One row's error must not end the other rows' requests.
  for (const Chunk& chunk : chunks) {
    if (chunk.samples > 0) SampleAlone(chunk);
  }
  return results_;
}

absl::Status ModelRunner::SampleRows() {
  const std::vector<SampleRow>& rows = batch_.sample_rows();
  sampled_.assign(rows.size(), SampledToken{});
  if (rows.empty()) return absl::OkStatus();
  return ops_.Sample(
      stream_,
      {.logits = logits_, .rows = rows, .out = sampled_, .plan = transformer_.sample_plan()});
}

// Computes log-probabilities of a prompt. The logits of a whole prompt would take gigabytes, so
// they are computed for as many rows at a time as there is memory for.
absl::StatusOr<std::vector<SampledToken>> ModelRunner::Score(const Chunk& chunk, RowRange rows) {
  const EngineRequest& request = chunk.sequence->request.spec;
  const int32_t most = transformer_.limits().max_logit_rows;
  std::vector<SampledToken> tokens(static_cast<size_t>(rows.count));
  std::vector<SampleRow> wanted;
  for (int32_t done = 0; done < rows.count; done += most) {
    const RowRange piece = {.first = rows.first + done, .count = std::min(most, rows.count - done)};
    ASSIGN_OR_RETURN(const TensorView logits, transformer_.Logits(stream_, piece));
    wanted.clear();
    for (int32_t i = 0; i < piece.count; ++i) {
      const int32_t position = chunk.scored_begin + done + i;
      wanted.push_back({.position = position,
                        .num_logprobs = request.prompt_logprobs,
                        .given_token = request.prompt[static_cast<size_t>(position)]});
    }
    const auto out = std::span(tokens).subspan(static_cast<size_t>(done), wanted.size());
    RETURN_IF_ERROR(ops_.Sample(stream_, {.logits = logits, .rows = wanted, .out = out}));
  }
  return tokens;
}

// Samples after a single chunk when sampling the whole batch has failed. That call may have changed
// the logits, so they are computed anew: a pass over the last token alone, whose KV is in the pool
// already and is not stored again (a peer may be reading it). The result is the same where a row
// does not depend on its batch (P2), and as good elsewhere.
void ModelRunner::SampleAlone(const Chunk& chunk) {
  batch_.AssignLastToken(chunk);
  absl::StatusOr<TensorView> logits =
      transformer_.Forward(stream_, batch_.view(1, copies_.pairs, {}), store_.view(), nullptr);
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
