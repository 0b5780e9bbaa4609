#pragma once

#include "kvstore/block_table.h"
#include "kvstore/token_eviction/attention_scores.h"

namespace tandem {

// What a sequence that gives up KV at the end of its prompt has from its admission to that end.
// Thread: engine.
struct PendingEviction {
  BlockTable kept;         // blocks for the tokens that stay, which are copied into them
  AttentionScores scores;  // of the known tokens
};

}  // namespace tandem
