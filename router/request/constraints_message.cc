#include "router/request/constraints_message.h"

#include <algorithm>

namespace tandem {
namespace {

// Fills in the constraints that sampling parameters contain. The biases are sorted, because the
// order of the entries of a protobuf map differs from process to process.
TokenConstraints WithSampling(const v1::SamplingParams& params,
                              const google::protobuf::RepeatedField<int32_t>& forced) {
  TokenConstraints constraints = {
      .min_tokens = params.min_tokens(),
      .allowed_token_ids = {params.allowed_token_ids().begin(), params.allowed_token_ids().end()},
      .forced_token_ids = {forced.begin(), forced.end()}};
  for (const auto& [id, bias] : params.logit_bias()) constraints.logit_bias.push_back({id, bias});
  std::ranges::sort(constraints.logit_bias, {}, &TokenBias::token_id);
  return constraints;
}

}  // namespace

TokenConstraints ToConstraints(const v1::GenerateRequest& request) {
  return WithSampling(request.sampling(), request.forced_token_ids());
}

TokenConstraints ToConstraints(const v1::SequenceRequest& sequence) {
  TokenConstraints constraints = WithSampling(sequence.sampling(), sequence.forced_token_ids());
  for (const v1::TokenIds& word : sequence.bad_words()) {
    constraints.bad_words.emplace_back(word.ids().begin(), word.ids().end());
  }
  return constraints;
}

}  // namespace tandem
