#include "router/policy/classic_model.h"

#include <algorithm>

namespace tandem {

double ClassicModel::Transfer(double prompt_tokens) const {
  return prompt_tokens * c_.bytes_per_token / 1e9 / c_.bandwidth_gb_per_s * 1e3;
}

double ClassicModel::Step(double sequences) const {
  return c_.beta_ms * std::max(1.0, sequences / c_.batch_thresh);
}

double ClassicModel::Interference(double prompt_tokens, double load) const {
  return c_.gamma_ms * prompt_tokens * std::min(load, c_.batch_thresh) / c_.batch_thresh;
}

double ClassicModel::Unified(double prompt_tokens, double output_tokens, double load) const {
  return Prefill(prompt_tokens) + Step(std::max(load, 1.0)) * output_tokens +
         Interference(prompt_tokens, load);
}

double ClassicModel::Disaggregated(double prompt_tokens, double output_tokens,
                                   double sequences) const {
  return Prefill(prompt_tokens) + Transfer(prompt_tokens) + Step(sequences) * output_tokens;
}

double ClassicModel::BreakEvenLoad() const { return c_.batch_thresh * Transfer(1) / c_.gamma_ms; }

}  // namespace tandem
