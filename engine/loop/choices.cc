#include "engine/loop/choices.h"

#include <utility>
#include <vector>

#include "base/status.h"
#include "model/transformer/sampler.h"

namespace tandem {
namespace {

// Appends the tokens that another worker emitted for choice `index`, so that the sequence continues
// behind them.
void AppendEmitted(Sequence& sequence, int32_t index) {
  const EngineRequest& spec = sequence.request.spec;
  const OutputSoFar& emitted = spec.so_far[index];
  Row& row = sequence.rows.front();
  row.tokens.insert(row.tokens.end(), emitted.token_ids.begin(), emitted.token_ids.end());
  row.cumulative_logprob = emitted.cumulative_logprob;
  sequence.index = index;
  sequence.seed = ChoiceSeed(spec.sampling.seed, index);
  sequence.key.Extend(row.tokens);
}

}  // namespace

void Choices::Fork(Sequence& root, std::span<const SampledToken> first) {
  RequestState& request = root.request;
  std::vector<SequenceId> forks;
  bool root_has_choice = false;
  for (size_t i = 0; i < first.size(); ++i) {
    if (request.ended[i]) continue;
    const auto index = static_cast<int32_t>(i);
    if (!std::exchange(root_has_choice, true)) {
      root.index = index;
    } else {
      forks.push_back(parts_.requests.AddFork(root, index).id);
    }
  }
  for (const SequenceId id : request.sequences) {
    Sequence& sequence = parts_.requests.Get(id);
    const SampledToken& token = first[static_cast<size_t>(sequence.index)];
    sequence.seed = ChoiceSeed(request.spec.sampling.seed, sequence.index);
    sequence.rows.front().tokens.push_back(token.token_id);
    sequence.rows.front().cumulative_logprob = token.logprob;
  }
  parts_.scheduler.Fork(root.id, forks);
}

void Choices::Append(Sequence& sequence, const SampledToken& token) {
  Row& row = sequence.rows.front();
  row.tokens.push_back(token.token_id);
  row.cumulative_logprob += token.logprob;
  sequence.request.stream.Emit(sequence.index, {&token, 1}, sequence.request.stages);
  const FinishReason reason = sequence.StopReason();
  if (reason != FinishReason::kNone) End(sequence, reason);
}

void Choices::Resume(std::unique_ptr<RequestState> request) {
  request->prefilled = true;
  std::vector<std::pair<SequenceId, int32_t>> queued;
  for (int32_t i = 0; i < request->spec.n; ++i) {
    const OutputSoFar& emitted = request->spec.so_far[i];
    if (emitted.ended) continue;
    SequenceSpec spec = SpecOf(parts_.requests.NewSequenceId(), request->spec);
    spec.width = 1;
    spec.emitted_tokens = static_cast<int32_t>(emitted.token_ids.size());
    KeepAllWhereEvictionDoesNotFit(parts_.scheduler, spec, request->spec.eviction);
    const absl::Status status = parts_.scheduler.Enqueue(spec, parts_.clock.Now());
    if (!status.ok()) {
      for (const auto& [id, index] : queued) parts_.scheduler.Finish(id);
      return request->stream.Fail(status);
    }
    queued.emplace_back(spec.id, i);
  }
  RequestState& added = parts_.requests.Add(std::move(request));
  for (const auto& [id, index] : queued) {
    AppendEmitted(parts_.requests.AddSequence(added, id), index);
  }
}

// A block that is written to must not be shared. So each choice after the first gives up the last
// block of the prompt when it is not full, and computes its tokens again.
void Choices::ResumeFrom(Sequence& root) {
  RequestState& request = root.request;
  const int32_t prompt = request.prompt_tokens() - root.evicted_tokens;
  const int32_t whole_blocks = prompt - prompt % parts_.block_tokens;
  std::vector<Scheduler::Resumed> choices;
  for (int32_t i = 0; i < request.spec.n; ++i) {
    if (request.ended[i]) continue;
    const auto emitted = static_cast<int32_t>(request.spec.so_far[i].token_ids.size());
    if (choices.empty()) {
      root.index = i;
      choices.push_back({.id = root.id, .computed_tokens = prompt, .emitted_tokens = emitted});
      continue;
    }
    Sequence& fork = parts_.requests.AddFork(root, i);
    fork.tables.front().Truncate(whole_blocks);
    choices.push_back({.id = fork.id, .computed_tokens = whole_blocks, .emitted_tokens = emitted});
  }
  for (const Scheduler::Resumed& choice : choices) {
    Sequence& sequence = parts_.requests.Get(choice.id);
    AppendEmitted(sequence, sequence.index);
  }
  parts_.scheduler.Resume(root.id, choices);
}

void Choices::AdvanceBeams(Sequence& sequence, std::span<const SampledToken> tops) {
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
  // Replacing the tables frees the blocks of the beams that are not continued.
  sequence.rows = std::move(rows);
  sequence.tables = std::move(tables);
}

void Choices::EmitHypotheses(RequestState& request) {
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
  parts_.requests.End(request, {.reason = request.last_reason});
}

void Choices::End(Sequence& sequence, FinishReason reason) {
  RequestState& request = sequence.request;
  request.ended[static_cast<size_t>(sequence.index)] = true;
  request.last_reason = reason;
  request.stream.EndChoice({.index = sequence.index,
                            .reason = reason,
                            .cumulative_logprob = sequence.rows.front().cumulative_logprob});
  parts_.requests.Remove(sequence);
  if (request.sequences.empty()) parts_.requests.End(request, {.reason = reason});
}

void Choices::EndEarly(RequestState& request, int32_t index) {
  const bool known = index >= 0 && index < std::ssize(request.ended);
  if (!known || request.search || request.ended[index]) return;
  for (const SequenceId id : request.sequences) {
    Sequence& sequence = parts_.requests.Get(id);
    if (request.prefilled && !request.outgoing() && sequence.index == index) {
      return End(sequence, FinishReason::kEnded);
    }
  }
  if (!request.awaiting()) return;
  request.ended[index] = true;
  if (request.AllEnded()) parts_.requests.End(request, {.reason = FinishReason::kEnded});
}

}  // namespace tandem
