#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/output_stream.h"
#include "kernels/op_args.h"

namespace tandem {

// How a request wants its beams searched; the public API's fields.
struct BeamParams {
  enum class EarlyStopping : uint8_t { kHeuristic, kFirst, kNever };

  int32_t width = 2;
  float length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;

  // INVALID_ARGUMENT naming the field, its value and its range.
  absl::Status Validate() const;
};

inline constexpr int32_t kMaxBeamWidth = 16;

// One token of a beam or a hypothesis.
struct BeamToken {
  int32_t token_id = 0;
  float logprob = 0;
};

// A sequence that the search found, its last token included.
struct BeamHypothesis {
  std::vector<BeamToken> tokens;
  double cumulative_logprob = 0;
  double score = 0;  // cumulative_logprob / length^length_penalty
  FinishReason reason = FinishReason::kNone;  // kStop or kLength
};

// The algorithm alone: from the most probable tokens of each live beam to the next live beams.
// Knows neither blocks nor logits; whoever runs it forks block tables as it says.
// Token for token what HuggingFace transformers' generate(num_beams=..., do_sample=False) finds.
// Thread: one at a time.
class BeamSearch {
 public:
  struct Options {
    BeamParams params;
    int32_t max_tokens = 0;                // of output
    std::vector<int32_t> stop_token_ids;   // end a hypothesis; sorted
  };
  explicit BeamSearch(Options options);

  // How many of the most probable tokens Step needs of each live beam.
  int32_t candidates_per_beam() const;
  // 1 before the first step, then the width.
  int32_t num_live() const;
  bool done() const;

  // A new live beam: live beam `parent` before the step, and one token more.
  struct Continuation {
    int32_t parent = 0;
    int32_t token_id = 0;
  };
  // One step. top[i]: candidates_per_beam() tokens of live beam i, most probable first. Returns the
  // new live beams; none when the search is done.
  std::vector<Continuation> Step(std::span<const std::span<const TokenLogprob>> top);

  // The best `count` hypotheses, best first. Once done.
  std::vector<BeamHypothesis> Best(int32_t count) const;

 private:
  // ...
};

// candidates_per_beam() of a search with this many stop tokens.
int32_t BeamCandidates(const BeamParams& params, int32_t num_stop_tokens);

}  // namespace tandem
