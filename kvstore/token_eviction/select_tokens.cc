#include "kvstore/token_eviction/select_tokens.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"

namespace tandem {
namespace {

constexpr int32_t kSnapKvNeighbours = 7;  // as in SnapKV's pooling
// In measurements on SmolLM2-135M, 11 and 31 were no better, and the token's own attention alone was
// worse.
constexpr int32_t kEmaNeighbours = 15;

// The tokens that a KV head chooses among, between those that are kept in any case.
struct Middle {
  int32_t begin = 0;
  int32_t spans = 0;
  int32_t kept_spans = 0;
};

Middle MiddleOf(const TokenEviction& eviction, int32_t prompt_tokens) {
  const int32_t always = eviction.sink_tokens + eviction.recent_tokens;
  const int32_t middle = prompt_tokens - always;
  const int32_t fixed = always + middle % eviction.span_tokens;
  return {.begin = eviction.sink_tokens,
          .spans = middle / eviction.span_tokens,
          .kept_spans = (eviction.StoredTokens(prompt_tokens) - fixed) / eviction.span_tokens};
}

// The mean of the scores of a token and its nearest neighbours, `width` tokens in all.
float Smoothed(std::span<const float> scores, int32_t token, int32_t width) {
  const int32_t begin = std::max(0, token - width / 2);
  const int32_t end = std::min(static_cast<int32_t>(scores.size()), token + width / 2 + 1);
  return std::accumulate(scores.begin() + begin, scores.begin() + end, 0.0f) /
         static_cast<float>(end - begin);
}

float ScoreOf(TokenEvictionPolicy policy, int32_t layer, int32_t head,
              std::span<const float> scores, int32_t token) {
  switch (policy) {
    case TokenEvictionPolicy::kH2oEma:
      return scores[static_cast<size_t>(token)] + Smoothed(scores, token, kEmaNeighbours);
    case TokenEvictionPolicy::kH2oSum:
      return scores[static_cast<size_t>(token)];
    case TokenEvictionPolicy::kSnapKv:
      return Smoothed(scores, token, kSnapKvNeighbours);
    case TokenEvictionPolicy::kStreamingLlm:
      return static_cast<float>(token);
    case TokenEvictionPolicy::kRandom: {
      const int32_t key[] = {layer, head, token};
      return static_cast<float>(Hash64(std::as_bytes(std::span(key))) >> 40);
    }
  }
  return 0;
}

}  // namespace

float DecayOf(TokenEvictionPolicy policy) {
  return policy == TokenEvictionPolicy::kH2oEma ? 0.9f : 1.0f;
}

std::vector<int32_t> SelectTokens(const TokenEviction& eviction, int32_t layer, int32_t head,
                                  int32_t prompt_tokens, std::span<const float> scores) {
  TANDEM_CHECK(eviction.WindowTokens() == 0 || std::ssize(scores) == prompt_tokens,
               "each token of the prompt has a score");
  std::vector<int32_t> kept(static_cast<size_t>(eviction.StoredTokens(prompt_tokens)));
  std::iota(kept.begin(), kept.end(), 0);
  if (std::ssize(kept) == prompt_tokens) return kept;

  const Middle middle = MiddleOf(eviction, prompt_tokens);
  std::vector<float> span_scores(static_cast<size_t>(middle.spans));
  for (int32_t i = 0; i < middle.spans * eviction.span_tokens; ++i) {
    span_scores[static_cast<size_t>(i / eviction.span_tokens)] +=
        ScoreOf(eviction.policy, layer, head, scores, middle.begin + i);
  }
  std::vector<int32_t> order(span_scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + middle.kept_spans, order.end(),
                    [&](int32_t a, int32_t b) {
                      const float score_a = span_scores[static_cast<size_t>(a)];
                      const float score_b = span_scores[static_cast<size_t>(b)];
                      return score_a != score_b ? score_a > score_b : a < b;
                    });
  auto next = kept.begin() + middle.begin;
  for (int32_t i = 0; i < middle.kept_spans; ++i, next += eviction.span_tokens) {
    const int32_t first = middle.begin + order[static_cast<size_t>(i)] * eviction.span_tokens;
    std::iota(next, next + eviction.span_tokens, first);
  }
  std::iota(next, kept.end(), prompt_tokens - static_cast<int32_t>(kept.end() - next));
  return kept;
}

}  // namespace tandem
