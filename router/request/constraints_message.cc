#include "router/request/constraints_message.h"

#include <algorithm>

namespace tandem {

// The order of a map's entries differs from process to process.
TokenConstraints ToConstraints(const v1::SamplingParams& params) {
  TokenConstraints constraints = {
      .min_tokens = params.min_tokens(),
      .allowed_token_ids = {params.allowed_token_ids().begin(), params.allowed_token_ids().end()}};
  for (const auto& [id, bias] : params.logit_bias()) constraints.logit_bias.push_back({id, bias});
  std::ranges::sort(constraints.logit_bias, {}, &TokenBias::token_id);
  return constraints;
}

TokenConstraints ToConstraints(const v1::SequenceRequest& sequence) {
  TokenConstraints constraints = ToConstraints(sequence.sampling());
  for (const v1::TokenIds& word : sequence.bad_words()) {
    constraints.bad_words.emplace_back(word.ids().begin(), word.ids().end());
  }
  return constraints;
}

}  // namespace tandem
