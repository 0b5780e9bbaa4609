#include "engine/profile/scored_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// How many rows of logits are computed at a time: the logits of all of them would take a hundred
// megabytes of a large vocabulary.
constexpr int32_t kRowsAtOnce = 16;

// The logarithm of the sum of exp(logit), with which logits become log-probabilities.
double LogSumExp(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

double KlDivergence(std::span<const float> baseline, double baseline_sum,
                    std::span<const float> changed) {
  const double changed_sum = LogSumExp(changed);
  double divergence = 0;
  for (size_t i = 0; i < baseline.size(); ++i) {
    const double before = baseline[i] - baseline_sum;
    divergence += std::exp(before) * (before - (changed[i] - changed_sum));
  }
  return divergence;
}

absl::Status CheckTokens(std::span<const int32_t> tokens, const ModelConfig& config) {
  if (std::ssize(tokens) < ScoredText::kTokens) {
    return InvalidArgument("the text has {} tokens, and {} are needed", tokens.size(),
                           ScoredText::kTokens);
  }
  if (config.max_position_embeddings < ScoredText::kTokens) {
    return InvalidArgument("the model has a context of {} tokens, and {} are needed",
                           config.max_position_embeddings, ScoredText::kTokens);
  }
  for (const int32_t token : tokens.first(ScoredText::kTokens)) {
    if (token >= 0 && token < config.vocab_size) continue;
    return InvalidArgument("token {} is not in the model's vocabulary of {}", token,
                           config.vocab_size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScoredText>> ScoredText::Open(const ModelSource& source,
                                                             std::span<const int32_t> tokens) {
  std::unique_ptr<ScoredText> text(new ScoredText());
  ASSIGN_OR_RETURN(text->model_, PackModel(source, nullptr));
  RETURN_IF_ERROR(CheckTokens(tokens, text->model_.config));
  text->tokens_.assign(tokens.begin(), tokens.begin() + kTokens);
  RETURN_IF_ERROR(text->CreateStore());
  RETURN_IF_ERROR(text->Run(0, kContextTokens, {}));
  RETURN_IF_ERROR(text->KeepBaseline());
  return text;
}

absl::Status ScoredText::CreateStore() {
  const ModelConfig& config = model_.config;
  Device& device = *model_.backend.device;
  const KvLayout layout = {.num_layers = config.num_layers,
                           .num_kv_heads = config.num_kv_heads,
                           .head_dim = config.head_dim,
                           .block_tokens = kBlockTokens,
                           .dtype = config.dtype};
  ASSIGN_OR_RETURN(stream_, device.NewStream());
  ASSIGN_OR_RETURN(transformer_,
                   Transformer::Create(config, *model_.weights, device, *model_.backend.ops,
                                       {.max_tokens = std::max(kContextTokens, kScoredTokens),
                                        .max_logit_rows = kRowsAtOnce,
                                        .max_sequences = 1,
                                        .max_blocks_per_sequence = layout.BlocksFor(kTokens),
                                        .max_context_tokens = kTokens}));
  ASSIGN_OR_RETURN(store_, KvStore::Create({.layout = layout,
                                            .num_blocks = layout.BlocksFor(kTokens),
                                            .prefix_caching = PrefixCaching::kOff},
                                           device, *stream_, nullptr));
  RETURN_IF_ERROR(store_->Reserve(table_, kTokens));
  ASSIGN_OR_RETURN(rows_, device.AllocateHost(sizeof(float) * kRowsAtOnce *
                                              static_cast<size_t>(config.vocab_size)));
  return absl::OkStatus();
}

// Computes tokens [begin, begin + count) of the text, whose KV goes to the pool.
absl::Status ScoredText::Run(int32_t begin, int32_t count, std::span<const RowRange> scored) {
  std::vector<int32_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), begin);
  std::vector<int64_t> slots;
  for (const int32_t position : positions) slots.push_back(table_.Slot(position));
  const std::vector<int32_t> query_starts = {0, count};
  const std::vector<int32_t> context_lens = {begin + count};
  const std::vector<int32_t> table_starts = {0, table_.num_blocks()};
  const ForwardBatch batch = {
      .token_ids = std::span(tokens_).subspan(static_cast<size_t>(begin), positions.size()),
      .positions = positions,
      .slots = slots,
      .query_starts = query_starts,
      .context_lens = context_lens,
      .block_tables = {.ids = table_.block_ids(), .starts = table_starts},
      .scored = scored};
  RETURN_IF_ERROR(transformer_->Forward(*stream_, batch, store_->view(), nullptr).status());
  return stream_->Synchronize();
}

absl::Status ScoredText::Predict(const OnRow& on_row) {
  const std::vector<RowRange> all = {{.first = 0, .count = kScoredTokens}};
  RETURN_IF_ERROR(Run(kContextTokens, kScoredTokens, all));
  const auto vocab = static_cast<size_t>(model_.config.vocab_size);
  const size_t row_bytes = vocab * sizeof(float);
  for (int32_t done = 0; done < kScoredTokens; done += kRowsAtOnce) {
    const RowRange part = {.first = done, .count = std::min(kRowsAtOnce, kScoredTokens - done)};
    ASSIGN_OR_RETURN(const TensorView logits, transformer_->Logits(*stream_, part));
    for (int32_t i = 0; i < part.count; ++i) {
      const std::span<const float> row(logits.Row<float>(i), vocab);
      RETURN_IF_ERROR(
          stream_->Copy(rows_.bytes().subspan(static_cast<size_t>(i) * row_bytes, row_bytes),
                        std::as_bytes(row)));
    }
    RETURN_IF_ERROR(stream_->Synchronize());
    const auto* const host = reinterpret_cast<const float*>(rows_.data());
    for (int32_t i = 0; i < part.count; ++i) {
      on_row(static_cast<size_t>(done) + static_cast<size_t>(i),
             {host + static_cast<size_t>(i) * vocab, vocab});
    }
  }
  return absl::OkStatus();
}

absl::Status ScoredText::KeepBaseline() {
  return Predict([this](size_t, std::span<const float> logits) {
    baseline_.insert(baseline_.end(), logits.begin(), logits.end());
    baseline_sums_.push_back(LogSumExp(logits));
  });
}

absl::StatusOr<double> ScoredText::Divergence() {
  double sum = 0;
  RETURN_IF_ERROR(Predict([this, &sum](size_t row, std::span<const float> logits) {
    sum += KlDivergence(BaselineOf(row), baseline_sums_[row], logits);
  }));
  if (std::isfinite(sum)) return sum / kScoredTokens;
  return InvalidArgument("the model's predictions are not finite numbers");
}

absl::Status ScoredText::ReadLayer(int32_t layer, std::span<std::byte> kv) {
  const auto bytes = static_cast<size_t>(layout().ExtentBytes());
  for (int32_t i = 0; i < kContextBlocks; ++i) {
    RETURN_IF_ERROR(stream_->Copy(kv.subspan(static_cast<size_t>(i) * bytes, bytes),
                                  store_->Extent(layer, table_.block(i).id())));
  }
  return stream_->Synchronize();
}

absl::Status ScoredText::WriteSide(int32_t layer, KvSide side, std::span<const std::byte> kv) {
  // The first half of an extent is K, the second V, of whatever float type.
  const auto half = static_cast<size_t>(layout().ExtentBytes()) / 2;
  const size_t at = side == KvSide::kKeys ? 0 : half;
  for (int32_t i = 0; i < kContextBlocks; ++i) {
    RETURN_IF_ERROR(stream_->Copy(store_->Extent(layer, table_.block(i).id()).subspan(at, half),
                                  kv.subspan(static_cast<size_t>(i) * 2 * half + at, half)));
  }
  return stream_->Synchronize();
}

}  // namespace tandem
