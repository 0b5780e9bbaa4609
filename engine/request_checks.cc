#include "engine/request_checks.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/beam_search.h"
#include "engine/sequence.h"

namespace tandem {
namespace {

// Checks that an output which another worker began, and which is to be continued here, agrees with
// the tokens that are forced.
absl::Status CheckIsForced(const EngineRequest& request, std::string_view what,
                           std::span<const int32_t> output) {
  const std::vector<int32_t>& forced = request.constraints.forced_token_ids;
  if (forced.empty()) return absl::OkStatus();
  const auto [is, wanted] = std::ranges::mismatch(output, forced);
  if (is == output.end()) return absl::OkStatus();
  return InvalidArgument("{}[{}] is {}, which is not the one of forced_token_ids", what,
                         is - output.begin(), *is);
}

// Checks that a choice which is resumed has not ended: it has neither reached its limit nor emitted
// a token that ends it.
absl::Status CheckGoesOn(const EngineRequest& request, size_t index) {
  const OutputSoFar& choice = request.so_far[index];
  if (!std::isfinite(choice.cumulative_logprob)) {
    return InvalidArgument("so_far[{}]: the log-probability is {}", index,
                           choice.cumulative_logprob);
  }
  if (std::ssize(choice.token_ids) >= request.max_tokens) {
    return InvalidArgument("so_far[{}] has {} tokens of at most {}: it has ended", index,
                           choice.token_ids.size(), request.max_tokens);
  }
  for (const int32_t token : choice.token_ids) {
    if (StopReasonOf(request, token, 0) == FinishReason::kNone) continue;
    return InvalidArgument("so_far[{}] has stop token {}: it has ended", index, token);
  }
  return absl::OkStatus();
}

// Checks that all tokens are in the vocabulary. The error names the first that is not.
absl::Status CheckTokens(std::string_view what, std::span<const int32_t> ids, int32_t vocab_size) {
  const auto outside = [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; };
  const auto bad = std::find_if(ids.begin(), ids.end(), outside);
  if (bad == ids.end()) return absl::OkStatus();
  return InvalidArgument("{}[{}] is {}: token ids go from 0 to {}", what, bad - ids.begin(), *bad,
                         vocab_size - 1);
}

// Checks that a request can continue behind its so_far, if it has any.
absl::Status CheckSoFar(const EngineRequest& request, int32_t vocab_size) {
  if (request.so_far.empty()) return absl::OkStatus();
  if (request.beams) return InvalidArgument("so_far: a beam search begins anew");
  if (std::ssize(request.so_far) != request.n) {
    return InvalidArgument("so_far has {} choices, the request {}", request.so_far.size(),
                           request.n);
  }
  bool goes_on = false;
  for (size_t i = 0; i < request.so_far.size(); ++i) {
    if (request.so_far[i].ended) continue;
    goes_on = true;
    RETURN_IF_ERROR(CheckTokens("so_far", request.so_far[i].token_ids, vocab_size));
    RETURN_IF_ERROR(CheckGoesOn(request, i));
    RETURN_IF_ERROR(CheckIsForced(request, "so_far", request.so_far[i].token_ids));
  }
  return goes_on ? absl::OkStatus() : InvalidArgument("so_far: every choice has ended");
}

// The number of candidate tokens that each beam of `request` needs in a step.
int32_t CandidatesOf(const EngineRequest& request) {
  return BeamCandidates(request.beams->width, static_cast<int32_t>(request.stop_token_ids.size()));
}

absl::Status CheckBeams(const EngineRequest& request, const EngineLimits& limits) {
  RETURN_IF_ERROR(request.beams->Validate());
  if (request.beams->width > limits.max_width || request.beams->width < request.n) {
    return InvalidArgument("beam_width is {}: it must be from n ({}) to {} on this worker",
                           request.beams->width, request.n, limits.max_width);
  }
  const int32_t candidates = CandidatesOf(request);
  if (candidates <= limits.vocab_size) return absl::OkStatus();
  return InvalidArgument(
      "beam_width {} with {} stop tokens looks at {} tokens, the vocabulary has {}",
      request.beams->width, request.stop_token_ids.size(), candidates, limits.vocab_size);
}

absl::Status CheckWidth(const EngineRequest& request, const EngineLimits& limits) {
  if (request.n < 1 || request.n > limits.max_width) {
    return InvalidArgument("n is {}: it must be from 1 to {} on this worker", request.n,
                           limits.max_width);
  }
  return request.beams ? CheckBeams(request, limits) : absl::OkStatus();
}

absl::Status CheckMaxTokens(const EngineRequest& request) {
  const bool only_prompt = request.prompt_logprobs >= 0 && !request.beams;
  const int32_t least = only_prompt && request.so_far.empty() ? 0 : 1;
  if (request.max_tokens >= least) return absl::OkStatus();
  return InvalidArgument("max_tokens is {}: it must be at least {}", request.max_tokens, least);
}

absl::Status CheckConstraints(const EngineRequest& request, const EngineLimits& limits) {
  const TokenConstraints& constraints = request.constraints;
  RETURN_IF_ERROR(constraints.Validate(limits.vocab_size, request.stop_token_ids));
  RETURN_IF_ERROR(constraints.CheckMinTokens(request.max_tokens));
  RETURN_IF_ERROR(constraints.CheckForced(WidthOf(request), request.max_tokens));
  return request.prompt_logprobs == -1 ? absl::OkStatus()
                                       : CheckPromptLogprobs(request.prompt_logprobs);
}

// Checks that a request which is resumed brings its first tokens in so_far.
absl::Status CheckHasFirstTokens(const EngineRequest& request) {
  for (size_t i = 0; i < request.so_far.size(); ++i) {
    if (request.so_far[i].ended || !request.so_far[i].token_ids.empty()) continue;
    return InvalidArgument("so_far[{}] has no token: the prefill worker samples the first", i);
  }
  return absl::OkStatus();
}

absl::Status CheckFirstTokens(const DecodeRequest& decode, const EngineLimits& limits) {
  const EngineRequest& request = decode.request;
  const size_t expected = request.beams ? 1 : static_cast<size_t>(request.n);
  if (decode.first_tokens.size() != expected) {
    return InvalidArgument("{} first tokens came, {} are expected", decode.first_tokens.size(),
                           expected);
  }
  std::vector<int32_t> ids;
  for (const SampledToken& token : decode.first_tokens) {
    ids.push_back(token.token_id);
    for (const TokenLogprob& top : token.top) {
      ids.push_back(top.token_id);
      if (std::isfinite(top.logprob)) continue;
      return InvalidArgument("first_tokens: the log-probability of token {} is {}", top.token_id,
                             top.logprob);
    }
  }
  RETURN_IF_ERROR(CheckTokens("first_tokens", ids, limits.vocab_size));
  if (!request.beams) return CheckIsForced(request, "first_tokens", std::span(ids).first(1));
  const auto candidates = static_cast<size_t>(CandidatesOf(request));
  if (decode.first_tokens.front().top.size() == candidates) return absl::OkStatus();
  return InvalidArgument("the beam search begins with {} candidates, {} are expected",
                         decode.first_tokens.front().top.size(), candidates);
}

}  // namespace

absl::Status CheckRequest(const EngineRequest& request, const EngineLimits& limits) {
  if (request.prompt.empty()) return InvalidArgument("the prompt is empty");
  RETURN_IF_ERROR(CheckTokens("prompt", request.prompt, limits.vocab_size));
  RETURN_IF_ERROR(CheckMaxTokens(request));
  const int64_t total = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (total > limits.max_context_tokens) {
    return InvalidArgument(
        "the prompt's {} tokens and max_tokens {} exceed the context of {}: shorten one",
        request.prompt.size(), request.max_tokens, limits.max_context_tokens);
  }
  if (request.eviction && limits.sliding_window > 0) {
    return InvalidArgument(
        "KV cannot be evicted: the attention of this model sees the last {} tokens, and counts "
        "them "
        "by their slots",
        limits.sliding_window);
  }
  RETURN_IF_ERROR(CheckWidth(request, limits));
  RETURN_IF_ERROR(CheckSoFar(request, limits.vocab_size));
  RETURN_IF_ERROR(CheckConstraints(request, limits));
  return request.sampling.Validate();
}

absl::Status CheckDecode(const DecodeRequest& decode, const EngineLimits& limits) {
  RETURN_IF_ERROR(CheckRequest(decode.request, limits));
  if (!decode.request.so_far.empty()) return CheckHasFirstTokens(decode.request);
  return CheckFirstTokens(decode, limits);
}

}  // namespace tandem
