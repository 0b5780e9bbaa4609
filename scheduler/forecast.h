#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/cache_view.h"
#include "scheduler/expected_output.h"
#include "scheduler/memory_forecast.h"
#include "scheduler/sequence_book.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// How many blocks a sequence needs at a given length, and how long sequences will live, learned
// from the outputs that have ended.
// Thread: engine.
class Forecast {
 public:
  explicit Forecast(int32_t block_tokens) : block_tokens_(block_tokens) {}

  // Learns the length of an output from a running sequence that ends now.
  void ObserveEnd(const SequenceState& sequence);

  // The number of blocks that hold `tokens` tokens of each row of a sequence. All rows share the
  // full blocks of the prompt.
  int64_t BlocksAt(const SequenceSpec& spec, int64_t tokens) const;
  // The number of blocks for the tokens that stay when the sequence evicts KV. It holds them from
  // its admission on.
  int64_t KeptBlocks(const SequenceSpec& spec) const {
    return (int64_t{spec.kept_tokens} + block_tokens_ - 1) / block_tokens_;
  }
  // The most blocks that the sequence may ever hold.
  int64_t MaxBlocks(const SequenceSpec& spec) const;

  SequenceForecast Of(const SequenceState& sequence) const;
  // The number of output tokens that the sequence is expected to add to its known tokens.
  int32_t TokensLeft(const SequenceState& sequence) const {
    const int32_t most = sequence.most_output();
    return expected_output_.Remaining(std::min(sequence.num_output(), most), most);
  }
  // The memory forecast of all admitted sequences, with the blocks that the prefilling ones still
  // take for known tokens.
  MemoryForecast OfAdmitted(const SequenceBook& book, const CacheView& view) const;

 private:
  const int32_t block_tokens_;
  ExpectedOutput expected_output_;
};

}  // namespace tandem
