#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// How much attention each token of a prompt got, per layer and KV head: what Ops::ColumnMass gives,
// added up over the chunks of the prompt. Thread: engine.
class AttentionScores {
 public:
  AttentionScores(int32_t num_layers, int32_t num_kv_heads, int32_t num_tokens)
      : num_kv_heads_(static_cast<size_t>(num_kv_heads)),
        num_tokens_(static_cast<size_t>(num_tokens)),
        scores_(static_cast<size_t>(num_layers) * num_kv_heads_ * num_tokens_) {}

  // `mass`: [num_kv_heads, tokens], where tokens is at most num_tokens().
  void Add(int32_t layer, std::span<const float> mass) {
    const size_t tokens = mass.size() / num_kv_heads_;
    const size_t first_head = static_cast<size_t>(layer) * num_kv_heads_;
    for (size_t i = 0; i < mass.size(); ++i) {
      scores_[(first_head + i / tokens) * num_tokens_ + i % tokens] += mass[i];
    }
  }

  int32_t num_tokens() const { return static_cast<int32_t>(num_tokens_); }
  std::span<const float> Of(int32_t layer, int32_t head) const {
    const size_t row = static_cast<size_t>(layer) * num_kv_heads_ + static_cast<size_t>(head);
    return std::span(scores_).subspan(row * num_tokens_, num_tokens_);
  }

 private:
  const size_t num_kv_heads_;
  const size_t num_tokens_;
  std::vector<float> scores_;  // [num_layers, num_kv_heads, num_tokens]
};

}  // namespace tandem
