#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/profile/packed_model.h"
#include "kernels/op_args.h"
#include "kvstore/kv_store.h"
#include "model/transformer/forward.h"

namespace tandem {

// A model and a text: the KV of the text's first tokens, its context, is computed once, and the
// predictions of the tokens behind it as often as asked, from whatever KV the pool then holds.
// Thread: one at a time.
class ScoredText {
 public:
  static constexpr int32_t kContextTokens = 384;
  static constexpr int32_t kScoredTokens = 256;
  static constexpr int32_t kTokens = kContextTokens + kScoredTokens;
  static constexpr int32_t kBlockTokens = 16;
  static constexpr int32_t kContextBlocks = kContextTokens / kBlockTokens;

  // Loads the model, computes the KV of the context, and keeps the predictions that follow from it
  // as the baseline. Takes the first kTokens of `tokens`. INVALID_ARGUMENT when there are fewer, or
  // a token or so many positions are none of the model's; else the errors of PackModel.
  static absl::StatusOr<std::unique_ptr<ScoredText>> Open(const ModelSource& source,
                                                          std::span<const int32_t> tokens);

  const KvLayout& layout() const { return store_->layout(); }
  // The bytes of the context's KV in one layer: kContextBlocks extents.
  size_t LayerBytes() const { return static_cast<size_t>(kContextBlocks * layout().ExtentBytes()); }

  // Reads the context's KV of a layer into `kv`, which has LayerBytes() bytes.
  absl::Status ReadLayer(int32_t layer, std::span<std::byte> kv);
  // Writes K or V of `kv`, which has LayerBytes() bytes, in place of the context's.
  absl::Status WriteSide(int32_t layer, KvSide side, std::span<const std::byte> kv);
  // Predicts the scored tokens from the pool's KV. Returns the mean over these tokens of the KL
  // divergence, in nats and over the whole vocabulary, between the baseline and what is predicted.
  absl::StatusOr<double> Divergence();

 private:
  // Called for each scored token, in order, with the logits over the vocabulary.
  using OnRow = std::function<void(size_t row, std::span<const float> logits)>;

  ScoredText() = default;
  absl::Status CreateStore();
  absl::Status Run(int32_t begin, int32_t count, std::span<const RowRange> scored);
  absl::Status Predict(const OnRow& on_row);
  absl::Status KeepBaseline();
  std::span<const float> BaselineOf(size_t row) const {
    const auto vocab = static_cast<size_t>(model_.config.vocab_size);
    return std::span(baseline_).subspan(row * vocab, vocab);
  }

  PackedModel model_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<KvStore> store_;
  BlockTable table_{kBlockTokens};     // the blocks of the text
  DeviceBuffer rows_;                  // logits of some rows, in the host's memory
  std::vector<float> baseline_;        // logits [kScoredTokens, vocabulary]
  std::vector<double> baseline_sums_;  // LogSumExp of each row of baseline_
};

}  // namespace tandem
