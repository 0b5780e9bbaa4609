#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// How far the predictions of a model that is served in one way (tested) are from those of the same
// model served in another (the baseline), before each of the same tokens.
struct PredictionChange {
  double baseline_perplexity = 1;
  double perplexity = 1;  // of the tested way of serving
  double top1_agreement =
      1;               // the share of tokens before which both find the same one most probable
  double kl_nats = 0;  // the mean of KlLowerBound

  double perplexity_change_percent() const { return (perplexity / baseline_perplexity - 1) * 100; }
};

// Compares the log-probabilities of two outputs. INTERNAL unless both are of the same tokens with
// at least one alternative each.
absl::StatusOr<PredictionChange> ComparePredictions(std::span<const v1::TokenLogprobs> baseline,
                                                    std::span<const v1::TokenLogprobs> tested);

// Whether greedy decoding would output these tokens: each is the most probable one in its place.
bool AreMostProbable(std::span<const v1::TokenLogprobs> tokens);

// A lower bound of the Kullback-Leibler divergence, in nats, of the tested distribution from the
// baseline's, both of which are known by their most probable tokens only. It sums over the
// baseline's most probable tokens that the tested distribution lists too, and over one bucket for
// all other tokens. Merging tokens into a bucket can only reduce the divergence, so that over the
// whole vocabulary is at least as large.
// Source: Cover and Thomas, "Elements of Information Theory", 2006, section 2.7 (log sum
// inequality).
double KlLowerBound(const v1::TokenLogprobs& baseline, const v1::TokenLogprobs& tested);

}  // namespace tandem
