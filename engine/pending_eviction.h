#pragma once

#include "kvstore/block_table.h"
#include "kvstore/token_eviction/attention_scores.h"

namespace tandem {

// The state of a sequence that will evict KV at the end of its prompt, from its admission until
// then. Thread: engine.
struct PendingEviction {
  BlockTable kept;         // blocks for the tokens that stay, which are copied into them
  AttentionScores scores;  // of the known tokens
};

}  // namespace tandem
