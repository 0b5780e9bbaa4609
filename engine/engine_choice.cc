// What a request becomes once its prompt is computed: one sequence per choice, or beams.

#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "model/transformer/sampler.h"

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

void EngineLoop::Resume(SubmitMessage& message) {
  auto request = std::make_unique<RequestState>(std::move(message.request));
  request->stream = std::move(message.stream);
  request->accepted = message.accepted;
  request->prefilled = true;
  std::vector<std::pair<SequenceId, int32_t>> queued;
  for (int32_t i = 0; i < request->spec.n; ++i) {
    const OutputSoFar& said = request->spec.so_far[i];
    if (said.ended) continue;
    SequenceSpec spec = SpecOf(SequenceId(next_sequence_++), request->spec);
    spec.width = 1;
    spec.emitted_tokens = static_cast<int32_t>(said.token_ids.size());
    if (absl::Status status = scheduler_.Enqueue(spec, clock_.Now()); !status.ok()) {
      for (const auto& [id, index] : queued) scheduler_.Finish(id);
      return request->stream.Fail(status);
    }
    queued.emplace_back(spec.id, i);
  }
  RequestState& added = Add(std::move(request));
  for (const auto& [id, index] : queued) {
    GoOnBehind(AddSequence(added, id, store_.NewKey(added.spec.cache_salt)), index);
  }
}

// Forks compute the prompt's last part of a block again: no block is shared that is written to.
void EngineLoop::ResumeFrom(Sequence& root) {
  RequestState& request = root.request;
  const int32_t prompt = request.prompt_tokens();
  const int32_t whole_blocks = prompt - prompt % options_.layout.block_tokens;
  std::vector<Scheduler::Resumed> choices;
  for (int32_t i = 0; i < request.spec.n; ++i) {
    if (request.ended[i]) continue;
    const auto said = static_cast<int32_t>(request.spec.so_far[i].token_ids.size());
    if (choices.empty()) {
      root.index = i;
      choices.push_back({.id = root.id, .computed_tokens = prompt, .emitted_tokens = said});
      continue;
    }
    AddFork(root, i);
    Sequence& fork = *Find(request.sequences.back());
    fork.tables.front().Truncate(whole_blocks);
    choices.push_back({.id = fork.id, .computed_tokens = whole_blocks, .emitted_tokens = said});
  }
  for (const Scheduler::Resumed& choice : choices) {
    Sequence& sequence = *Find(choice.id);
    GoOnBehind(sequence, sequence.index);
  }
  scheduler_.Resume(root.id, choices);
}

void EngineLoop::GoOnBehind(Sequence& sequence, int32_t index) {
  const EngineRequest& spec = sequence.request.spec;
  const OutputSoFar& said = spec.so_far[index];
  Row& row = sequence.rows.front();
  row.tokens.insert(row.tokens.end(), said.token_ids.begin(), said.token_ids.end());
  row.cumulative_logprob = said.cumulative_logprob;
  sequence.index = index;
  sequence.seed = ChoiceSeed(spec.sampling.seed, index);
  sequence.key.Extend(row.tokens);
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
