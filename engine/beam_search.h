#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/finish_reason.h"
#include "base/sampling_params.h"
#include "kernels/op_args.h"

namespace tandem {

// One token of a beam or a hypothesis.
struct BeamToken {
  int32_t token_id = 0;
  float logprob = 0;
};

// A sequence that the search found, its last token included.
struct BeamHypothesis {
  std::vector<BeamToken> tokens;
  double cumulative_logprob = 0;
  double score = 0;  // cumulative_logprob / tokens.size()^length_penalty

  FinishReason reason = FinishReason::kNone;  // kStop or kLength
};

// The algorithm of a beam search alone: it takes the most probable tokens of each live beam and
// gives the next live beams. It knows neither blocks nor logits; its caller forks the block tables
// as the new beams require. It finds, token for token, what HuggingFace transformers 5.23 finds
// with generate(num_beams=..., do_sample=False), GenerationMixin._beam_search. It adds in float32
// as that does, so that ties fall alike (except for scores below -1e9, which transformers cannot
// tell from absent ones):
//   - Of all continuations of all live beams the candidates_per_beam() with the highest sum of
//     log-probabilities compete, equal ones by rising beam, then by rising token id.
//   - Candidates that end (stop token, max_tokens) and are among the best `width` become
//     hypotheses; the best `width` hypotheses by score are kept, equal ones by age.
//   - The best `width` candidates that do not end are the next live beams.
//   - The search is done at max_tokens, and before when `width` hypotheses are kept and
//     early_stopping is kFirst, or the best live beam could not beat the worst hypothesis: at its
//     present length (kHeuristic) or at the length that suits it best (kNever).
// Thread: one at a time.
class BeamSearch {
 public:
  struct Options {
    BeamParams params;
    int32_t max_tokens = 0;               // limit of the output's length; at least 1
    std::vector<int32_t> stop_token_ids;  // tokens that end a hypothesis; sorted, no duplicates
  };
  explicit BeamSearch(Options options);

  // How many of the most probable tokens Step needs of each live beam.
  int32_t candidates_per_beam() const;
  // The number of live beams: 1 before the first step, then the width (fewer only where the
  // vocabulary offers fewer continuations).
  int32_t num_live() const;
  bool done() const;

  // A new live beam: the live beam with index `parent` before the step, extended by one token.
  struct Continuation {
    int32_t parent = 0;
    int32_t token_id = 0;
  };
  // Makes one step of the search, which must not be done yet. top[i] has the candidates_per_beam()
  // most probable tokens of live beam i, most probable first, or the whole vocabulary where that
  // has fewer. Log-probabilities are finite. Returns the new live beams; none when the search is
  // done.
  std::vector<Continuation> Step(std::span<const std::span<const TokenLogprob>> top);

  // The best `count` hypotheses, at most the width, best first. Only valid once the search is done.
  std::vector<BeamHypothesis> Best(int32_t count) const;

 private:
  // Beams share their beginnings: each is a path to the root of a tree of tokens.
  struct Node {
    int32_t parent = 0;  // index in nodes_, or kRoot
    BeamToken token;
  };
  struct LiveBeam {
    int32_t node = 0;
    float sum = 0;
  };
  struct Finished {
    int32_t node = 0;
    float sum = 0;
    float score = 0;
    FinishReason reason = FinishReason::kNone;
  };
  struct Candidate {
    int32_t parent = 0;  // index in live_
    BeamToken token;
    float sum = 0;  // sum of the beam's log-probabilities, this token's included
    FinishReason end = FinishReason::kNone;
  };
  static constexpr int32_t kRoot = -1;

  std::vector<Candidate> Rank(std::span<const std::span<const TokenLogprob>> top) const;
  FinishReason EndOf(int32_t token_id) const;
  void Finish(const Candidate& candidate);
  std::vector<Continuation> Extend(std::span<const Candidate> candidates);
  int32_t Append(const Candidate& candidate);
  // Whether a live beam may still become one of the best hypotheses.
  bool WorthContinuing() const;
  float Score(float sum, int32_t length) const;

  Options options_;
  int32_t length_ = 0;  // tokens of each live beam
  bool done_ = false;
  std::vector<Node> nodes_;
  std::vector<LiveBeam> live_ = {{.node = kRoot}};  // highest sum first
  std::vector<Finished> finished_;                  // highest score first, at most the width
};

}  // namespace tandem
