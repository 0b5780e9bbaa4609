#include "engine/sequence.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace tandem {

FinishReason StopReasonOf(const EngineRequest& request, int32_t token, int32_t count) {
  return StopReasonOf(request.stop_token_ids, request.max_tokens, token, count);
}

RequestState::RequestState(EngineRequest request) : spec(std::move(request)) {
  ended.assign(static_cast<size_t>(spec.n), false);
  for (size_t i = 0; i < spec.so_far.size(); ++i) ended[i] = spec.so_far[i].ended;
  if (spec.beams) RestartSearch();
}

std::optional<ReservationId> RequestState::awaiting() const {
  return incoming() == nullptr ? std::nullopt : incoming()->awaiting;
}

std::optional<DType> RequestState::sent_dtype() const {
  return incoming() == nullptr ? std::nullopt : incoming()->sent_dtype;
}

const TokenEviction* RequestState::eviction() const {
  if (!spec.eviction) return nullptr;
  const bool refused = outgoing() != nullptr && outgoing()->target.stored_tokens !=
                                                    StoredTokens(spec.prompt.size(), spec.eviction);
  return refused ? nullptr : &*spec.eviction;
}

bool RequestState::AllEnded() const {
  return std::find(ended.begin(), ended.end(), false) == ended.end();
}

void RequestState::RestartSearch() {
  search.emplace(BeamSearch::Options{
      .params = *spec.beams, .max_tokens = spec.max_tokens, .stop_token_ids = spec.stop_token_ids});
}

FinishReason Sequence::StopReason() const {
  if (num_output() == 0) return FinishReason::kNone;
  return StopReasonOf(request.spec, rows.front().tokens.back(), num_output());
}

int32_t Sequence::most_cached_tokens() const {
  if (request.scores_prompt()) return request.scored_tokens - 1;
  const int32_t most = num_tokens() - 1;
  return will_evict() ? std::clamp(num_tokens() - request.eviction()->WindowTokens(), 0, most)
                      : most;
}

// The number of known tokens that keep KV. Output that was decoded before a preemption is kept: it
// is computed again with the whole prompt.
int32_t Sequence::num_kept() const {
  const TokenEviction* const evicts = request.eviction();
  if (evicts == nullptr || evicted_tokens > 0) return num_tokens();
  return evicts->StoredTokens(request.prompt_tokens()) + num_output();
}

void Sequence::ForgetKv() {
  tables.clear();
  eviction.reset();
  evicted_tokens = 0;
  late_tokens = 0;
  if (!request.evicts_again) request.spec.eviction.reset();
  if (!request.search) return;
  request.RestartSearch();
  rows.assign(1, {.tokens = request.spec.prompt});
}

uint64_t TenantKey(std::string_view tenant) {
  return Hash64(std::as_bytes(std::span(tenant.data(), tenant.size())));
}

void KeepAllWhereEvictionDoesNotFit(const Scheduler& scheduler, SequenceSpec& spec,
                                    std::optional<TokenEviction>& eviction) {
  if (spec.kept_tokens == 0 || scheduler.CheckFits(spec).ok()) return;
  SequenceSpec whole = spec;
  whole.kept_tokens = 0;
  whole.output_share = 1;
  if (!scheduler.CheckFits(whole).ok()) return;
  spec = whole;
  eviction.reset();
}

SequenceSpec SpecOf(SequenceId id, const EngineRequest& request) {
  return SpecOfStored(id, request, static_cast<int32_t>(request.prompt.size()));
}

SequenceSpec SpecOfStored(SequenceId id, const EngineRequest& request, int32_t stored_tokens) {
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  const int32_t most_output = std::max(request.max_tokens, 1) - 1;
  const int32_t kept = StoredTokens(request.prompt.size(), request.eviction);
  return {.id = id,
          .prompt_tokens = stored_tokens,
          .max_total_tokens = stored_tokens + most_output,
          .evicted_tokens = prompt - stored_tokens,
          .kept_tokens = kept < prompt ? kept + most_output : 0,
          .output_share = request.eviction ? request.eviction->OutputShare() : 1,
          .width = WidthOf(request),
          .priority = request.priority,
          .deadline = request.deadline,
          .tenant = TenantKey(request.tenant)};
}

}  // namespace tandem
