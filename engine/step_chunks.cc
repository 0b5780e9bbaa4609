#include "engine/step_chunks.h"

#include "base/check.h"
#include "base/status.h"
#include "model/transformer/sampler.h"

namespace tandem {

absl::Status MakeRoom(std::span<const Chunk> chunks, KvStore& store, BlockCopies& copies) {
  for (const Chunk& chunk : chunks) {
    BlockTable& table = chunk.table();
    const absl::Status reserved = store.Reserve(table, chunk.end());
    TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
    RETURN_IF_ERROR(store.MakeWritable(table, chunk.begin, chunk.end(), copies));
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
      features.decode_context += chunk.end();
      continue;
    }
    features.prefill_tokens += chunk.count;
    features.prefill_pairs += CausalPairs(chunk.begin, chunk.end());
  }
  return features;
}

}  // namespace tandem
