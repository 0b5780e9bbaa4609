#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/latency_model/interference_table.h"
#include "scheduler/latency_model/step_features.h"

namespace tandem {

// alpha: a step of prefill chunks alone takes max(floor, a0 + a1 N) + a2 A, where N is the number
// of its tokens and A that of their causal pairs.
struct PrefillCost {
  double floor_ms = 0;
  double base_ms = 0;   // coefficient a0
  double token_ms = 0;  // coefficient a1, the classic scalar alpha
  double pair_ms = 0;   // coefficient a2
};

// beta: a step of decodes alone takes b0[bucket(B)] + b1 B + b2 C, where B is the number of its
// sequences and C the context that they read.
struct DecodeCost {
  struct Bucket {
    int32_t max_sequences = 0;  // a bucket holds every B up to this, above the bucket before
    double base_ms = 0;         // coefficient b0
  };
  std::vector<Bucket> buckets;  // ascending; the last bucket also holds every larger B
  double sequence_ms = 0;       // coefficient b1
  double context_token_ms = 0;  // coefficient b2
};

// b0 of a batch of `sequences` sequences; as a mean, the number need not be whole.
double BaseMs(const DecodeCost& beta, double sequences);

// batch_thresh: the number of tokens N + B at which the measured step curve turns from flat to
// rising, with its 95% interval.
struct Knee {
  int32_t tokens = 0;
  int32_t low = 0;
  int32_t high = 0;
};

// All cost coefficients of the steps of one worker. Without a gamma grid, a prefill token adds what
// alpha says, whatever decodes beside it.
struct StepCoefficients {
  PrefillCost alpha;
  DecodeCost beta;
  InterferenceGrid gamma;
  std::optional<Knee> batch_thresh;  // none: the curve has no knee
};

// The time of one step of a worker, from measured coefficients. It never falls when a feature
// grows. Immutable after Create, so any thread may read it.
class StepModel {
 public:
  // A model in which steps take no time.
  StepModel() = default;
  // INVALID_ARGUMENT names the coefficient that is negative, not finite or out of order.
  static absl::StatusOr<StepModel> Create(StepCoefficients coefficients);

  const StepCoefficients& coefficients() const { return coefficients_; }

  // The time of a step with these features; an empty step takes no time.
  ModelTime Step(const StepFeatures& features) const {
    return ModelTime(StepMs(features.prefill_tokens, static_cast<double>(features.prefill_pairs),
                            features.decode_sequences,
                            static_cast<double>(features.decode_context)));
  }
  // The time in milliseconds of a step with these features, which may be averages.
  double StepMs(double tokens, double pairs, double sequences, double context) const;

  // The time that computing tokens [begin, end) of one sequence adds to steps that run anyway.
  ModelTime AddedPrefill(int32_t begin, int32_t end) const;

  // gamma: the milliseconds that each of `tokens` fresh prefill tokens adds to a step in which
  // `sequences` sequences decode with `context` tokens in all. `tokens` must be above 0.
  double GammaMs(int32_t tokens, int32_t sequences, int64_t context) const;

 private:
  double PrefillMs(double tokens, double pairs) const;
  double DecodeMs(double sequences, double context) const;

  StepCoefficients coefficients_;
  InterferenceTable interference_;
};

// beta, the classic scalar: the time of a step that decodes one sequence with 512 tokens of
// context.
inline ModelTime Beta(const StepModel& model) {
  return model.Step({.decode_sequences = 1, .decode_context = 512});
}

}  // namespace tandem
