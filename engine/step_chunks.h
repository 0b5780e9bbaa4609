#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model/step_features.h"

namespace tandem {

// Reserves blocks for the tokens of `chunks` and makes those blocks writable. Adds to `copies` the
// copies that must be made first, of blocks that are shared with other sequences. The scheduler has
// made sure that there is room.
absl::Status MakeRoom(std::span<const Chunk> chunks, KvStore& store, BlockCopies& copies);

// The seed of a token that is sampled after `chunk`. `choice` is the number of its choice where the
// first token of several choices is sampled.
uint64_t SeedOf(const Chunk& chunk, int32_t choice);

// The features of a step of `chunks` that the cost model needs.
StepFeatures FeaturesOf(std::span<const Chunk> chunks);

}  // namespace tandem
