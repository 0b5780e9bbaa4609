#include "engine/loop/delivery.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"

namespace tandem {

// Sequences are looked up by id for each part, because the end of one sequence may end others of
// its request.
void Delivery::Deliver(std::span<const Chunk> chunks,
                       std::span<absl::StatusOr<SampledToken>> tokens, std::span<Scores> scores,
                       TimePoint computed) {
  std::vector<Part> parts;
  size_t next_scores = 0;
  for (const Chunk& chunk : chunks) {
    if (parts.empty() || parts.back().id != chunk.sequence->id) {
      parts.push_back({.id = chunk.sequence->id, .computed_tokens = chunk.end()});
    }
    parts.back().samples += static_cast<size_t>(chunk.samples);
    if (chunk.num_scored > 0) parts.back().scores = &scores[next_scores++];
  }
  size_t next = 0;
  for (const Part& part : parts) {
    Sequence* const sequence = core_.requests.Find(part.id);
    if (sequence != nullptr) {
      DeliverTo(*sequence, part, tokens.subspan(next, part.samples), computed);
    }
    next += part.samples;
  }
}

void Delivery::DeliverTo(Sequence& sequence, const Part& part,
                         std::span<absl::StatusOr<SampledToken>> tokens, TimePoint computed) {
  RequestState& request = sequence.request;
  if (const OutgoingKv* outgoing = request.outgoing(); outgoing && !outgoing->error.ok()) {
    const absl::Status error = outgoing->error;
    return core_.requests.End(request, error);
  }
  if (part.scores != nullptr) {
    const absl::Status status = DeliverScores(request, *part.scores);
    if (!status.ok()) return core_.requests.End(request, status);
  }
  std::vector<SampledToken> sampled;
  for (absl::StatusOr<SampledToken>& token : tokens) {
    if (!token.ok()) {
      const absl::Status status = token.status();
      // The request's own constraints may leave no token to sample, which says nothing about the
      // device.
      if (!absl::IsInvalidArgument(status)) {
        LogError("request={} sampling failed: {}", request.spec.id, status.ToString());
        failed_(status);
      }
      return core_.requests.End(request, status);
    }
    sampled.push_back(*std::move(token));
  }
  // Inserts full blocks into the prefix cache, with three exceptions. No other request can share
  // the tokens of beams that have forked. KV that was computed from a prompt in a narrower dtype,
  // or from a prompt without all of its KV, differs from what this worker would compute for the
  // same tokens.
  if (sequence.rows.size() == 1 && !request.sent_dtype() && sequence.evicted_tokens == 0) {
    core_.store.Insert(sequence.key, sequence.rows.front().tokens, part.computed_tokens,
                       sequence.tables.front());
  }
  if (sampled.empty()) return;
  if (const absl::Status status = evictor_.Evict(sequence); !status.ok()) {
    LogError("request={} eviction of KV failed: {}", request.spec.id, status.ToString());
    return core_.requests.End(request, status);
  }
  core_.store.Unexpect(sequence.id);
  const bool first = !std::exchange(request.prefilled, true);
  if (first) EndPrefill(request, computed);
  if (request.spec.max_tokens == 0) return EndScored(request);
  output_tokens_ += sampled.size();
  if (request.search) return DeliverBeams(sequence, sampled);
  if (first) return DeliverFirst(sequence, sampled);
  core_.choices.Append(sequence, sampled.front());
}

// Emits the log-probabilities of a prompt in pieces, because receivers bound the size of a message:
// with the most alternatives that a request may ask for, a piece has a quarter of a megabyte.
absl::Status Delivery::DeliverScores(RequestState& request, const Scores& scores) {
  constexpr size_t kPiece = 1024;
  if (!scores.ok()) {
    LogError("request={} scoring its prompt failed: {}", request.spec.id,
             scores.status().ToString());
    failed_(scores.status());
    return scores.status();
  }
  std::span<const SampledToken> left = *scores;
  while (!left.empty()) {
    const auto piece = left.first(std::min(left.size(), kPiece));
    request.stream.EmitPromptLogprobs(request.scored_tokens, piece);
    request.scored_tokens += static_cast<int32_t>(piece.size());
    left = left.subspan(piece.size());
  }
  return absl::OkStatus();
}

// Ends a request that asked only for its prompt's log-probabilities: the token that was sampled
// behind the prompt is dropped.
void Delivery::EndScored(RequestState& request) {
  for (int32_t i = 0; i < request.spec.n; ++i) {
    request.stream.EndChoice({.index = i, .reason = FinishReason::kLength});
  }
  core_.requests.End(request, {.reason = FinishReason::kLength});
}

void Delivery::EndPrefill(RequestState& request, TimePoint computed) {
  StageTimes& stages = request.stages;
  const TimePoint now = core_.clock.Now();
  stages.transfer = core_.sender.time_spent() - request.handoff_time_before;
  stages.prefill = computed - request.prefill_began - stages.transfer;
  stages.first_token = now - computed;
  if (OutgoingKv* outgoing = request.outgoing()) outgoing->first_token = now;
}

void Delivery::DeliverFirst(Sequence& root, std::span<const SampledToken> first) {
  RequestState& request = root.request;
  for (size_t i = 0; i < first.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    request.stream.Emit(index, {&first[i], 1}, request.stages);
    const FinishReason reason = StopReasonOf(request.spec, first[i].token_id, 1);
    if (reason == FinishReason::kNone) continue;
    request.ended[i] = true;
    request.last_reason = reason;
    request.stream.EndChoice(
        {.index = index, .reason = reason, .cumulative_logprob = first[i].logprob});
  }
  if (request.AllEnded()) return core_.requests.End(request, {.reason = request.last_reason});
  if (request.outgoing()) return handoffs_.Commit(root);
  core_.choices.Fork(root, first);
}

// Delivers the candidates of a beam search. A search with max_tokens 1 has ended with its first
// tokens, so there is nothing to hand off.
void Delivery::DeliverBeams(Sequence& sequence, std::span<const SampledToken> tokens) {
  RequestState& request = sequence.request;
  if (!request.outgoing() || request.spec.max_tokens == 1) {
    return core_.choices.AdvanceBeams(sequence, tokens);
  }
  request.stream.EmitBeamStart(tokens.front(), request.stages);
  handoffs_.Commit(sequence);
}

}  // namespace tandem
