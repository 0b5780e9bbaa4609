#pragma once

#include <array>
#include <cstdint>

#include "router/output_length/length_bins.h"
#include "router/output_length/output_length_predictor.h"

namespace tandem {

// For each bin of LengthBins, the probability that an output that reaches the bin ends in it.
using BinProbabilities = std::array<float, LengthBins::kCount>;

// What is expected before anything was observed: one token in 256 ends an output. Beyond 512 tokens
// an output is the less likely to end with its next token, the longer it is (a power law).
const BinProbabilities& PriorProbabilities();

// The lengths of observed outputs as the share that ended in each bin, of those that reached it. An
// output that was capped counts for the bins before its cap and not for those after it
// (Kaplan and Meier, "Nonparametric estimation from incomplete observations", 1958).
// What was observed `memory` outputs ago counts 1/e.
class LengthHazards {
 public:
  // memory: the number of outputs after which an observation counts 1/e; above 1.
  explicit LengthHazards(float memory) : keep_(1 - 1 / memory) {}

  // Adds an observed output of this length, which is at least 1.
  void Observe(int32_t length, FinishKind kind);

  // Replaces the probabilities by those of the observations and of `weight` further outputs with
  // the given probabilities: shrinkage to what is known of a wider class of outputs.
  void Refine(float weight, BinProbabilities& probabilities) const;

  int64_t observations() const { return observations_; }

 private:
  struct Bin {
    float reached = 0;
    float ended = 0;
  };

  const float keep_;
  std::array<Bin, LengthBins::kCount> bins_ = {};
  int64_t observations_ = 0;
};

// Mean and quantiles of an output with `emitted` tokens that goes on, and that is cut at
// max_tokens. Within a bin every length is equally likely. `observations` is left 0.
LengthForecast Forecast(const BinProbabilities& probabilities, int32_t emitted, int32_t max_tokens);

}  // namespace tandem
