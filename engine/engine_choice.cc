// What a request becomes once its prompt is computed: one sequence per choice, or beams.

#include <utility>
#include <vector>

#include "engine/engine_loop.h"

namespace tandem {

void EngineLoop::ForkChoices(Sequence& root, std::span<const SampledToken> first) {
  RequestState& request = root.request;
  std::vector<SequenceId> forks;
  bool root_goes_on = false;
  for (size_t i = 0; i < first.size(); ++i) {
    if (request.ended[i]) continue;
    if (!std::exchange(root_goes_on, true)) {
      root.index = static_cast<int32_t>(i);
      continue;
    }
    AddFork(root, static_cast<int32_t>(i));
    forks.push_back(request.sequences.back());
  }
  for (const SequenceId id : request.sequences) {
    Sequence& sequence = *Find(id);
    const SampledToken& token = first[static_cast<size_t>(sequence.index)];
    sequence.seed = ChoiceSeed(request.spec.sampling.seed, sequence.index);
    sequence.rows.front().tokens.push_back(token.token_id);
    sequence.rows.front().cumulative_logprob = token.logprob;
  }
  scheduler_.Fork(root.id, forks);
}

void EngineLoop::AddFork(Sequence& root, int32_t index) {
  Sequence& fork = AddSequence(root.request, SequenceId(next_sequence_++), root.key);
  fork.index = index;
  fork.tables.push_back(root.tables.front().Fork());
}

void EngineLoop::AdvanceBeams(Sequence& sequence, std::span<const SampledToken> tops) {
  RequestState& request = sequence.request;
  std::vector<std::span<const TokenLogprob>> candidates;
  for (const SampledToken& token : tops) candidates.emplace_back(token.top);
  const std::vector<BeamSearch::Continuation> beams = request.search->Step(candidates);
  if (request.search->done()) return EmitHypotheses(request);

  std::vector<Row> rows;
  std::vector<BlockTable> tables;
  for (const BeamSearch::Continuation& beam : beams) {
    const auto parent = static_cast<size_t>(beam.parent);
    rows.push_back(sequence.rows[parent]);
    rows.back().tokens.push_back(beam.token_id);
    tables.push_back(sequence.tables[parent].Fork());
  }
  // The blocks of beams that were given up go back here.
  sequence.rows = std::move(rows);
  sequence.tables = std::move(tables);
}

void EngineLoop::EmitHypotheses(RequestState& request) {
  const std::vector<BeamHypothesis> best = request.search->Best(request.spec.n);
  for (size_t i = 0; i < best.size(); ++i) {
    const BeamHypothesis& hypothesis = best[i];
    std::vector<SampledToken> tokens;
    for (const BeamToken& token : hypothesis.tokens) {
      tokens.push_back({.token_id = token.token_id, .logprob = token.logprob, .top = {}});
    }
    const auto index = static_cast<int32_t>(i);
    request.stream.Emit(index, tokens, request.stages);
    request.stream.EndChoice({.index = index,
                              .reason = hypothesis.reason,
                              .cumulative_logprob = hypothesis.cumulative_logprob,
                              .score = hypothesis.score});
    request.last_reason = hypothesis.reason;
  }
  End(request, {.reason = request.last_reason});
}

void EngineLoop::EndChoice(Sequence& sequence, FinishReason reason) {
  RequestState& request = sequence.request;
  request.ended[static_cast<size_t>(sequence.index)] = true;
  request.last_reason = reason;
  request.stream.EndChoice({.index = sequence.index,
                            .reason = reason,
                            .cumulative_logprob = sequence.rows.front().cumulative_logprob});
  Drop(sequence);
  if (request.sequences.empty()) End(request, {.reason = reason});
}

}  // namespace tandem
