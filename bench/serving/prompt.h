#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/serving/schedule.h"

namespace tandem::loadgen {

// Two-letter words: a text whose tokens are ordinary ones in every vocabulary. Their ids, in the
// server's vocabulary, are what prompts are made of.
std::string PoolText();

// The distinct ids, sorted.
std::vector<int32_t> MakeTokenPool(std::vector<int32_t> ids);

// The prompt of `request`, drawn from `pool`, which is not empty: equal segments give equal tokens.
std::vector<int32_t> MakePromptTokens(const ScheduledRequest& request,
                                      const std::vector<int32_t>& pool);

// The same as two-letter words between blanks, for servers that take text alone. A word is one or
// two tokens in most vocabularies: the server reports how many the prompt really has.
std::string MakePromptText(const ScheduledRequest& request);

}  // namespace tandem::loadgen
