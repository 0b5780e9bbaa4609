#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_eviction.h"

namespace tandem {

// The positions of a prompt's tokens that KV head `head` of `layer` keeps, as many as
// eviction.StoredTokens(prompt_tokens): first the sinks, at last the most recent tokens, and
// between them the others, those with the highest scores first. So a block near the end of the
// middle can be given up later, when there is less room. `scores` has the attention that each token
// got from the queries of this head; only policies that rank tokens by a window of queries
// (TokenEviction::WindowTokens) read it, so it may be empty for the others. Of tokens with equal
// scores, the first ones are kept. Source: Zhang et al., "H2O", 2023; Li et al., "SnapKV", 2024;
// Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023.
std::vector<int32_t> SelectTokens(const TokenEviction& eviction, int32_t layer, int32_t head,
                                  int32_t prompt_tokens, std::span<const float> scores);

// The decay of ColumnMassArgs that a policy uses: the factor by which a query counts less for every
// 16 queries that follow it in the prompt; 1 when all count alike.
float DecayOf(TokenEvictionPolicy policy);

}  // namespace tandem
