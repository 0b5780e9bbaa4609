#include "router/request/resolve_request.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "router/prefix/session_table.h"
#include "router/request/constraints_message.h"
#include "router/request/kv_fields.h"

namespace tandem {
namespace {

std::vector<int32_t> Sorted(const google::protobuf::RepeatedField<int32_t>& ids) {
  std::vector<int32_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace

RequestSpec ResolveRequest(const v1::GenerateRequest& request, const RequestLimits& limits,
                           const RequestIdentity& identity) {
  using Text = RequestSpec::Text;
  RequestSpec spec{
      .id =
          request.request_id().empty() ? fmt::format("{:016x}", identity.id) : request.request_id(),
      .model = limits.model,
      .sequence = {},
      .stop_strings = {request.stop().begin(), request.stop().end()},
      .special = {.stop = request.include_stop() ? Text::kIncluded : Text::kLeftOut,
                  .tokens = request.has_skip_special_tokens() && !request.skip_special_tokens()
                                ? Text::kIncluded
                                : Text::kLeftOut,
                  .shown_ids = Sorted(request.shown_special_token_ids())},
      .n = request.has_n() ? request.n() : 1,
      .logprobs = request.sampling().has_logprobs() ? RequestSpec::Logprobs::kWanted
                                                    : RequestSpec::Logprobs::kUnwanted,
      .wanted = request.route(),
      .slo = ResolveSlo(request, limits),
      .session = SessionKey(request.tenant(), request.session_id()),
      .received = identity.received,
      .deadline = identity.deadline};
  v1::SequenceRequest& sequence = spec.sequence;
  const auto stops = ResolveStopTokens(request, limits);
  sequence.set_request_id(identity.id);
  *sequence.mutable_sampling() = ResolveSampling(request.sampling(), identity.seed);
  sequence.mutable_stop_token_ids()->Add(stops.begin(), stops.end());
  sequence.set_priority(request.priority());
  sequence.set_n(ResolveChoices(request));
  sequence.set_tenant(request.tenant());
  sequence.set_cache_salt(request.cache_salt());
  sequence.set_kv_quality(std::string(Name(ResolveQuality(request, limits.default_kv))));
  if (const auto eviction = ResolveEviction(request, limits.default_kv)) {
    sequence.set_kv_eviction(ToString(*eviction));
  }
  *sequence.mutable_forced_token_ids() = request.forced_token_ids();
  if (request.has_prompt_logprobs()) sequence.set_prompt_logprobs(request.prompt_logprobs());
  if (request.has_beam_search()) *sequence.mutable_beam_search() = ResolveBeams(request);
  // Ranking needs log-probabilities, whether the client wants them or not.
  if (spec.ranked() && !sequence.sampling().has_logprobs()) {
    sequence.mutable_sampling()->set_logprobs(0);
  }
  return spec;
}

absl::Status SetPrompt(google::protobuf::RepeatedField<int32_t> prompt,
                       const v1::GenerateRequest& request, const RequestLimits& limits,
                       RequestSpec& spec) {
  if (spec.sequence.bad_words_size() > 0) {
    const auto& stops = spec.sequence.stop_token_ids();
    RETURN_IF_ERROR(
        ToConstraints(spec.sequence)
            .Validate(limits.vocab_size, {stops.data(), static_cast<size_t>(stops.size())}));
  }
  TruncatePrompt(request, prompt);
  ASSIGN_OR_RETURN(const int32_t max_tokens, ResolveMaxTokens(request, prompt.size(), limits));
  spec.sequence.set_max_tokens(max_tokens);
  *spec.sequence.mutable_prompt() = std::move(prompt);
  return absl::OkStatus();
}

}  // namespace tandem
