#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model/step_features.h"

namespace tandem {

// Reserves blocks for the tokens of `chunks` and makes those blocks writable; blocks that are shared
// with other sequences are to be copied first, as `copies` then says. The scheduler has seen to it
// that there is room.
absl::Status MakeRoom(std::span<const Chunk> chunks, KvStore& store, BlockCopies& copies);

// The seed of a token that is sampled after `chunk`: of its choice number `choice` where it samples the
// first token of several.
uint64_t SeedOf(const Chunk& chunk, int32_t choice);

// A step of `chunks` in the terms of the cost model.
StepFeatures FeaturesOf(std::span<const Chunk> chunks);

}  // namespace tandem
