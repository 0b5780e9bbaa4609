#include "engine/prompt_scores.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "kvstore/token_eviction/select_tokens.h"

namespace tandem {

absl::Status PromptScores::Plan(std::span<const Chunk> chunks, const KvLayout& layout) {
  requests_.clear();
  scores_.clear();
  num_layers_ = layout.num_layers;
  const auto heads = static_cast<size_t>(num_layers_) * layout.num_kv_heads;
  size_t floats = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Sequence& sequence = *chunks[i].sequence;
    if (chunks[i].decode || !sequence.eviction) continue;
    const TokenEviction& eviction = *sequence.request.eviction();
    const int32_t behind = sequence.num_tokens() - chunks[i].end();
    const int32_t rows = std::min(chunks[i].count, eviction.WindowTokens() - behind);
    if (rows <= 0) continue;
    requests_.push_back({.sequence = static_cast<int32_t>(i),
                         .last_rows = rows,
                         .rows_behind = behind,
                         .decay = DecayOf(eviction.policy)});
    scores_.push_back(&sequence.eviction->scores);
    floats += heads * static_cast<size_t>(chunks[i].end());
  }
  if (floats * sizeof(float) > memory_.size()) {
    memory_ = DeviceBuffer();
    ASSIGN_OR_RETURN(memory_, device_.AllocateHost(floats * sizeof(float)));
  }
  std::span<float> left(reinterpret_cast<float*>(memory_.data()), floats);
  for (MassRequest& request : requests_) {
    const int32_t context = chunks[static_cast<size_t>(request.sequence)].end();
    const size_t size = heads * static_cast<size_t>(context);
    request.out = left.first(size);
    left = left.subspan(size);
  }
  return absl::OkStatus();
}

void PromptScores::Collect() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    const std::span<const float> out = requests_[i].out;
    const size_t layer_size = out.size() / static_cast<size_t>(num_layers_);
    for (int32_t layer = 0; layer < num_layers_; ++layer) {
      scores_[i]->Add(layer, out.subspan(static_cast<size_t>(layer) * layer_size, layer_size));
    }
  }
  requests_.clear();
}

}  // namespace tandem
