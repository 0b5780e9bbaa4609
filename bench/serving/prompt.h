#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/serving/schedule.h"

namespace tandem::loadgen {

// A text of two-letter words, whose tokens are ordinary ones in every vocabulary. Prompts are made
// of the ids that these tokens have at the server.
std::string PoolText();

// Sorts the ids and drops repeated ones.
std::vector<int32_t> MakeTokenPool(std::vector<int32_t> ids);

// The prompt of `request`, drawn from `pool`, which is not empty: equal segments give equal tokens.
std::vector<int32_t> MakePromptTokens(const ScheduledRequest& request,
                                      const std::vector<int32_t>& pool);

// The same as two-letter words between blanks, for servers that take text alone. A word is one or
// two tokens in most vocabularies: the server reports how many the prompt really has.
std::string MakePromptText(const ScheduledRequest& request);

}  // namespace tandem::loadgen
