#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/token_bias.h"

namespace tandem {

inline constexpr size_t kMaxAllowedTokens = 16384;
inline constexpr size_t kMaxBadWords = 128;  // texts; each stands for at most two token sequences

// Which tokens a request lets be sampled, and how it shifts their logits; or which tokens its
// output is made of instead of sampled ones. What may follow depends on the tokens of the output
// alone, so that every worker that continues an output decides alike.
struct TokenConstraints {
  std::vector<TokenBias> logit_bias;  // each token at most once
  int32_t min_tokens = 0;             // stop tokens are not sampled before the output has so many
  std::vector<int32_t> allowed_token_ids;       // only these are sampled; empty: all
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that no output contains
  std::vector<int32_t> forced_token_ids;        // the whole output; empty: it is sampled

  // Checks the ranges of all fields. The router checks what a client sends, and a worker checks
  // again what a router sends. INVALID_ARGUMENT names the field, its value and its range; also when
  // no token would be left. Stop tokens are checked here, too, because they are indices of logits
  // until min_tokens.
  absl::Status Validate(int32_t vocab_size, std::span<const int32_t> stop_token_ids) const;
  // Checks that min_tokens is at most max_tokens, which may depend on the length of the prompt.
  absl::Status CheckMinTokens(int32_t max_tokens) const;
  // Checks that forced output, if there is any, fits a request of `width` choices or beams and
  // max_tokens.
  absl::Status CheckForced(int32_t width, int32_t max_tokens) const;

  // The token that follows an output of `num_output` tokens where the output is forced; -1: it is
  // sampled.
  int32_t ForcedAfter(size_t num_output) const {
    return num_output < forced_token_ids.size() ? forced_token_ids[num_output] : -1;
  }
  // Whether the output excludes tokens: then AppendExcluded says which.
  bool ExcludesAfter(size_t num_output) const {
    return num_output < static_cast<size_t>(min_tokens) || !bad_words.empty();
  }
  // Appends the tokens that must not follow `output`: stop tokens before min_tokens, and each token
  // that would complete a bad word.
  void AppendExcluded(std::span<const int32_t> output, std::span<const int32_t> stop_token_ids,
                      std::vector<int32_t>& excluded) const;

 private:
  absl::Status CheckBiases(int32_t vocab_size) const;
  absl::Status CheckBadWords(int32_t vocab_size) const;
  absl::Status CheckNothingShapesForced(std::span<const int32_t> stop_token_ids) const;
  absl::Status CheckSomethingLeft(int32_t vocab_size,
                                  std::span<const int32_t> stop_token_ids) const;
};

}  // namespace tandem
