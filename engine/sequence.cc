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

void Sequence::ForgetKv() {
  tables.clear();
  if (!request.search) return;
  request.RestartSearch();
  rows.assign(1, {.tokens = request.spec.prompt});
}

uint64_t TenantKey(std::string_view tenant) {
  return Hash64(std::as_bytes(std::span(tenant.data(), tenant.size())));
}

SequenceSpec SpecOf(SequenceId id, const EngineRequest& request) {
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  return {.id = id,
          .prompt_tokens = prompt,
          .max_total_tokens = prompt + std::max(request.max_tokens, 1) - 1,
          .width = request.width(),
          .priority = request.priority,
          .deadline = request.deadline,
          .tenant = TenantKey(request.tenant)};
}

}  // namespace tandem
