#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// How the tokens of a prompt are ranked to decide which ones keep their KV
// (docs/token_eviction.md). In every policy the first and the last tokens are kept in any case.
enum class TokenEvictionPolicy : uint8_t {
  kH2oEma,        // by the attention of the last 512 queries, which counts less the older they are
  kH2oSum,        // by the attention of the last 1,024 queries
  kSnapKv,        // by the attention of the last 64 queries, smoothed over neighbours
  kStreamingLlm,  // keeps the last tokens
  kRandom,        // at random: a control for measurements
};

inline constexpr std::array<std::string_view, 5> kTokenEvictionPolicyNames = {
    "h2o-ema", "h2o-sum", "snapkv", "streaming-llm", "random"};

constexpr std::string_view Name(TokenEvictionPolicy policy) {
  return kTokenEvictionPolicyNames[static_cast<size_t>(policy)];
}

// Which share of the KV is kept: of a prompt, once it is computed, and of the output. Every KV
// head of every layer keeps the same number of tokens of the prompt, but decides by itself which
// tokens these are. Of the output, the latest tokens are kept.
struct TokenEviction {
  static constexpr double kMaxRatio = 64;
  static constexpr int32_t kMaxKept = 1 << 16;

  TokenEvictionPolicy policy = TokenEvictionPolicy::kSnapKv;
  double ratio = 2;            // tokens of the prompt per token that is kept: more than 1
  int32_t sink_tokens = 4;     // tokens kept at the beginning
  int32_t recent_tokens = 32;  // tokens kept at the end
  int32_t span_tokens = 1;     // so many neighbours are kept or evicted together: a power of two
  bool output = true;          // output is evicted as well, so that the ratio holds for all tokens

  // How many of `prompt_tokens` are kept, at least one.
  int32_t StoredTokens(int32_t prompt_tokens) const;
  // The share of the output's tokens that is kept in the long run.
  double OutputShare() const { return output ? 1 / ratio : 1; }
  // How many of the last queries of a prompt rank its tokens; 0 where no query does.
  int32_t WindowTokens() const;

  friend bool operator==(const TokenEviction&, const TokenEviction&) = default;
};

// The text form "POLICY:RATIO", with ",sink=N", ",recent=N", ",span=N" and ",output=keep" where
// these are not the defaults.
std::string ToString(const TokenEviction& eviction);
// Parses the form that ToString writes. INVALID_ARGUMENT names what is wrong and what is allowed.
absl::StatusOr<TokenEviction> ParseTokenEviction(std::string_view text);

}  // namespace tandem
