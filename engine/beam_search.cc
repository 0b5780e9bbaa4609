#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace tandem {

BeamSearch::BeamSearch(Options options) : options_(std::move(options)) {
  TANDEM_CHECK(options_.max_tokens >= 1, "a search without a token to find");
  TANDEM_CHECK(options_.params.Validate().ok(), "beam parameters that were not validated");
}

int32_t BeamSearch::candidates_per_beam() const {
  return BeamCandidates(options_.params.width,
                        static_cast<int32_t>(options_.stop_token_ids.size()));
}

int32_t BeamSearch::num_live() const { return static_cast<int32_t>(live_.size()); }

bool BeamSearch::done() const { return done_; }

std::vector<BeamSearch::Continuation> BeamSearch::Step(
    std::span<const std::span<const TokenLogprob>> top) {
  TANDEM_CHECK(!done_, "a step after the last");
  TANDEM_CHECK(top.size() == live_.size(), "not one list of tokens per live beam");
  ++length_;
  const std::vector<Candidate> candidates = Rank(top);
  const size_t eligible = std::min(candidates.size(), static_cast<size_t>(options_.params.width));
  for (size_t i = 0; i < eligible; ++i) {
    if (candidates[i].end != FinishReason::kNone) Finish(candidates[i]);
  }
  std::vector<Continuation> continuations = Extend(candidates);
  done_ = !WorthContinuing();
  if (!done_) return continuations;
  live_.clear();
  return {};
}

// The candidates_per_beam() best continuations of all live beams together, best first.
std::vector<BeamSearch::Candidate> BeamSearch::Rank(
    std::span<const std::span<const TokenLogprob>> top) const {
  std::vector<Candidate> candidates;
  for (size_t beam = 0; beam < live_.size(); ++beam) {
    for (const TokenLogprob& next : top[beam]) {
      candidates.push_back({.parent = static_cast<int32_t>(beam),
                            .token = {.token_id = next.token_id, .logprob = next.logprob},
                            .sum = live_[beam].sum + next.logprob,
                            .end = EndOf(next.token_id)});
    }
  }
  const auto key = [](const Candidate& c) {
    return std::tuple(-c.sum, c.parent, c.token.token_id);
  };
  const size_t count = std::min(candidates.size(), static_cast<size_t>(candidates_per_beam()));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(count),
                    candidates.end(),
                    [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
  candidates.resize(count);
  return candidates;
}

FinishReason BeamSearch::EndOf(int32_t token_id) const {
  return StopReasonOf(options_.stop_token_ids, options_.max_tokens, token_id, length_);
}

// Inserts the candidate as a hypothesis at the rank of its score, and drops the worst hypothesis
// when there are more than the width.
void BeamSearch::Finish(const Candidate& candidate) {
  const float score = Score(candidate.sum, length_);
  const auto place =
      std::upper_bound(finished_.begin(), finished_.end(), score,
                       [](float value, const Finished& other) { return value > other.score; });
  finished_.insert(
      place,
      {.node = Append(candidate), .sum = candidate.sum, .score = score, .reason = candidate.end});
  if (finished_.size() > static_cast<size_t>(options_.params.width)) finished_.pop_back();
}

std::vector<BeamSearch::Continuation> BeamSearch::Extend(std::span<const Candidate> candidates) {
  std::vector<Continuation> continuations;
  std::vector<LiveBeam> extended;
  for (const Candidate& candidate : candidates) {
    if (extended.size() == static_cast<size_t>(options_.params.width)) break;
    if (candidate.end != FinishReason::kNone) continue;
    continuations.push_back({.parent = candidate.parent, .token_id = candidate.token.token_id});
    extended.push_back({.node = Append(candidate), .sum = candidate.sum});
  }
  live_ = std::move(extended);
  return continuations;
}

int32_t BeamSearch::Append(const Candidate& candidate) {
  nodes_.push_back(
      {.parent = live_[static_cast<size_t>(candidate.parent)].node, .token = candidate.token});
  return static_cast<int32_t>(nodes_.size()) - 1;
}

bool BeamSearch::WorthContinuing() const {
  const BeamParams& params = options_.params;
  if (live_.empty()) return false;
  if (finished_.size() < static_cast<size_t>(params.width)) return true;
  if (params.early_stopping == BeamParams::EarlyStopping::kFirst) return false;
  const bool longer_is_better =
      params.early_stopping == BeamParams::EarlyStopping::kNever && params.length_penalty > 0;
  const int32_t length = longer_is_better ? options_.max_tokens : length_;
  return Score(live_.front().sum, length) > finished_.back().score;
}

// The score stays finite, so that hypotheses can be compared whatever the length penalty.
float BeamSearch::Score(float sum, int32_t length) const {
  using Limits = std::numeric_limits<float>;
  const double divisor = std::pow(length, static_cast<double>(options_.params.length_penalty));
  const double normal = std::clamp<double>(divisor, Limits::min(), Limits::max());
  return std::max(sum / static_cast<float>(normal), Limits::lowest());
}

std::vector<BeamHypothesis> BeamSearch::Best(int32_t count) const {
  TANDEM_CHECK(done_, "the search is not done");
  TANDEM_CHECK(count <= options_.params.width, "more hypotheses than the search keeps");
  std::vector<BeamHypothesis> best;
  for (const Finished& finished : finished_) {
    if (best.size() == static_cast<size_t>(count)) break;
    BeamHypothesis& hypothesis = best.emplace_back(BeamHypothesis{
        .cumulative_logprob = finished.sum, .score = finished.score, .reason = finished.reason});
    for (int32_t node = finished.node; node != kRoot; node = nodes_[node].parent) {
      hypothesis.tokens.push_back(nodes_[node].token);
    }
    std::reverse(hypothesis.tokens.begin(), hypothesis.tokens.end());
  }
  return best;
}

}  // namespace tandem
