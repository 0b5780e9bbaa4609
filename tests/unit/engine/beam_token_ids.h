#pragma once

#include <cstdint>
#include <vector>

#include "engine/beam_search.h"

namespace tandem::beam_token_ids {

using TokenIds = std::vector<int32_t>;

// The tokens of a hypothesis, without their log-probabilities.
inline TokenIds Ids(const BeamHypothesis& hypothesis) {
  TokenIds ids;
  for (const BeamToken& token : hypothesis.tokens) ids.push_back(token.token_id);
  return ids;
}

}  // namespace tandem::beam_token_ids
