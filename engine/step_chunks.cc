#include "engine/step_chunks.h"

#include "base/check.h"
#include "base/status.h"
#include "model/transformer/sampler.h"

namespace tandem {

absl::Status MakeRoom(std::span<const Chunk> chunks, KvStore& store, BlockCopies& copies) {
  for (const Chunk& chunk : chunks) {
    BlockTable& table = chunk.table();
    const absl::Status reserved = store.Reserve(table, chunk.slots_end());
    TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
    RETURN_IF_ERROR(store.MakeWritable(table, chunk.slots_begin(), chunk.slots_end(), copies));
  }
  return absl::OkStatus();
}

uint64_t SeedOf(const Chunk& chunk, int32_t choice) {
  const Sequence& sequence = *chunk.sequence;
  return chunk.samples > 1 ? ChoiceSeed(sequence.request.spec.sampling.seed, choice)
                           : sequence.seed;
}

StepFeatures FeaturesOf(std::span<const Chunk> chunks) {
  StepFeatures features;
  for (const Chunk& chunk : chunks) {
    if (chunk.decode) {
      ++features.decode_sequences;
      features.decode_context += chunk.slots_end();
      continue;
    }
    features.prefill_tokens += chunk.count;
    features.prefill_pairs += CausalPairs(chunk.slots_begin(), chunk.slots_end());
  }
  return features;
}

}  // namespace tandem
