#include "router/request/request_validation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "base/sampling_params.h"
#include "base/status.h"
#include "base/token_constraints.h"
#include "base/utf8.h"
#include "fmt/ranges.h"
#include "router/cluster/registration_check.h"
#include "router/request/constraints_message.h"
#include "router/request/kv_fields.h"

namespace tandem {
namespace {

constexpr int kMaxShownSpecialTokens = 64;

absl::Status CheckUtf8(std::string_view field, std::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return InvalidArgument("{} is not UTF-8: byte {} (0x{:02x}) begins no character", field, valid,
                         static_cast<unsigned char>(text[valid]));
}

absl::Status CheckTokenIds(std::string_view field,
                           const google::protobuf::RepeatedField<int32_t>& ids,
                           int32_t vocab_size) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return InvalidArgument("{}[{}]={} must be in [0, {})", field, i, ids[i], vocab_size);
    }
  }
  return absl::OkStatus();
}

// Whether the text has more tokens than the context can hold, whatever they are. Its length
// decides, because tokenizing megabytes takes seconds.
absl::Status CheckTextBytes(std::string_view text, const RequestLimits& limits) {
  if (!limits.max_bytes_per_token) return absl::OkStatus();
  const size_t most_tokens = static_cast<size_t>(std::max(limits.max_context_tokens - 1, 0));
  const size_t most_bytes = most_tokens * *limits.max_bytes_per_token;
  if (text.size() <= most_bytes) return absl::OkStatus();
  return InvalidArgument(
      "text has {} bytes; the context of {} holds at most {} tokens of at most {} bytes each, {} "
      "bytes in all: shorten the prompt",
      text.size(), limits.max_context_tokens, most_tokens, *limits.max_bytes_per_token, most_bytes);
}

absl::Status CheckPrompt(const v1::GenerateRequest& request, const RequestLimits& limits) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return InvalidArgument("prompt is missing: give text or token_ids");
    case v1::GenerateRequest::kText:
      if (request.text().empty()) return InvalidArgument("text is empty: a prompt needs a token");
      if (!limits.has_tokenizer) {
        return InvalidArgument("text: model {} has no tokenizer.json here; give token_ids",
                               limits.model);
      }
      if (!request.has_truncate_prompt_tokens()) {
        RETURN_IF_ERROR(CheckTextBytes(request.text(), limits));
      }
      return CheckUtf8("text", request.text());
    case v1::GenerateRequest::kTokenIds:
      if (request.token_ids().ids().empty()) {
        return InvalidArgument("token_ids is empty: a prompt needs a token");
      }
      return CheckTokenIds("token_ids", request.token_ids().ids(), limits.vocab_size);
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const v1::SamplingParams& params) {
  const v1::SamplingParams p = ResolveSampling(params, 0);
  const SamplingParams sampling = {.temperature = p.temperature(),
                                   .top_k = p.top_k(),
                                   .top_p = p.top_p(),
                                   .min_p = p.min_p(),
                                   .repetition_penalty = p.repetition_penalty(),
                                   .presence_penalty = p.presence_penalty(),
                                   .frequency_penalty = p.frequency_penalty()};
  RETURN_IF_ERROR(sampling.Validate());
  return params.has_logprobs() ? CheckLogprobs(params.logprobs()) : absl::OkStatus();
}

absl::Status CheckStops(const v1::GenerateRequest& request, const RequestLimits& limits) {
  if (request.stop_size() > limits.max_stop_strings) {
    return InvalidArgument("stop has {} strings; at most {} are taken", request.stop_size(),
                           limits.max_stop_strings);
  }
  if (request.stop_size() > 0 && !limits.has_tokenizer) {
    return InvalidArgument("stop: model {} has no tokenizer.json here; use stop_token_ids",
                           limits.model);
  }
  for (int i = 0; i < request.stop_size(); ++i) {
    const std::string& stop = request.stop(i);
    if (stop.empty()) return InvalidArgument("stop[{}] is empty: it would end every text", i);
    if (stop.size() > static_cast<size_t>(limits.max_stop_bytes)) {
      return InvalidArgument("stop[{}] has {} bytes; at most {} are taken", i, stop.size(),
                             limits.max_stop_bytes);
    }
    RETURN_IF_ERROR(CheckUtf8(fmt::format("stop[{}]", i), stop));
  }
  if (request.stop_token_ids_size() > limits.max_stop_token_ids) {
    return InvalidArgument("stop_token_ids has {} ids; at most {} are taken",
                           request.stop_token_ids_size(), limits.max_stop_token_ids);
  }
  return CheckTokenIds("stop_token_ids", request.stop_token_ids(), limits.vocab_size);
}

absl::Status CheckBadWords(const v1::GenerateRequest& request, const RequestLimits& limits) {
  if (request.bad_words_size() == 0) return absl::OkStatus();
  if (request.bad_words_size() > static_cast<int>(kMaxBadWords)) {
    return InvalidArgument("bad_words has {} words; at most {} are taken", request.bad_words_size(),
                           kMaxBadWords);
  }
  if (!limits.has_tokenizer) {
    return InvalidArgument("bad_words: model {} has no tokenizer.json here; use logit_bias",
                           limits.model);
  }
  for (int i = 0; i < request.bad_words_size(); ++i) {
    const std::string& word = request.bad_words(i);
    if (absl::StripLeadingAsciiWhitespace(word).empty()) {
      return InvalidArgument("bad_words[{}] is empty: it would exclude every token", i);
    }
    if (word.size() > static_cast<size_t>(limits.max_stop_bytes)) {
      return InvalidArgument("bad_words[{}] has {} bytes; at most {} are taken", i, word.size(),
                             limits.max_stop_bytes);
    }
    RETURN_IF_ERROR(CheckUtf8(fmt::format("bad_words[{}]", i), word));
  }
  return absl::OkStatus();
}

absl::Status CheckShownTokens(const v1::GenerateRequest& request, const RequestLimits& limits) {
  if (request.shown_special_token_ids_size() > kMaxShownSpecialTokens) {
    return InvalidArgument("shown_special_token_ids has {} ids; at most {} are taken",
                           request.shown_special_token_ids_size(), kMaxShownSpecialTokens);
  }
  return CheckTokenIds("shown_special_token_ids", request.shown_special_token_ids(),
                       limits.vocab_size);
}

// Checks a forced output: that it can fit into the context, before its tokens are copied, and that
// no text is to change or end it. Workers check the rest again (TokenConstraints).
absl::Status CheckForcedTexts(const v1::GenerateRequest& request, const RequestLimits& limits) {
  if (request.forced_token_ids().empty()) return absl::OkStatus();
  if (request.forced_token_ids_size() >= limits.max_context_tokens) {
    return InvalidArgument("forced_token_ids has {} ids; the context of {} holds fewer",
                           request.forced_token_ids_size(), limits.max_context_tokens);
  }
  if (request.stop_size() > 0) {
    return InvalidArgument("stop has {} strings; forced_token_ids take none: all of them come",
                           request.stop_size());
  }
  if (request.bad_words_size() == 0) return absl::OkStatus();
  return InvalidArgument("bad_words has {} words; forced_token_ids take none: nothing is sampled",
                         request.bad_words_size());
}

// Checks the token constraints as far as that is possible before the bad words are tokenized.
absl::Status CheckConstraints(const v1::GenerateRequest& request, const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckForcedTexts(request, limits));
  const TokenConstraints constraints = ToConstraints(request);
  RETURN_IF_ERROR(constraints.Validate(limits.vocab_size, ResolveStopTokens(request, limits)));
  if (request.has_max_tokens()) {
    RETURN_IF_ERROR(constraints.CheckMinTokens(request.max_tokens()));
  }
  RETURN_IF_ERROR(constraints.CheckForced(
      request.has_beam_search() ? request.beam_search().beam_width() : ResolveChoices(request),
      request.has_max_tokens() ? request.max_tokens() : request.forced_token_ids_size()));
  RETURN_IF_ERROR(CheckBadWords(request, limits));
  return CheckShownTokens(request, limits);
}

// Checks the fields that speak of the prompt, and max_tokens, whose least value depends on them.
absl::Status CheckPromptFields(const v1::GenerateRequest& request) {
  if (request.has_prompt_logprobs()) {
    RETURN_IF_ERROR(CheckPromptLogprobs(request.prompt_logprobs()));
  }
  if (request.has_truncate_prompt_tokens() && request.truncate_prompt_tokens() < 1) {
    return InvalidArgument("truncate_prompt_tokens={} must be at least 1",
                           request.truncate_prompt_tokens());
  }
  const bool may_be_zero = request.has_prompt_logprobs() && !request.has_beam_search();
  if (!request.has_max_tokens() || request.max_tokens() >= (may_be_zero ? 0 : 1)) {
    return absl::OkStatus();
  }
  return InvalidArgument("max_tokens={} must be at least 1; 0 is for prompt_logprobs alone",
                         request.max_tokens());
}

absl::Status CheckChoices(const v1::GenerateRequest& request, const RequestLimits& limits) {
  const int32_t n = request.has_n() ? request.n() : 1;
  if (n < 1 || n > limits.max_choices) {
    return InvalidArgument("n={} must be in [1, {}]", n, limits.max_choices);
  }
  if (!request.has_best_of()) return absl::OkStatus();
  if (request.has_beam_search()) {
    return InvalidArgument("best_of={} does not go with beam_search: n of its beam_width are given",
                           request.best_of());
  }
  if (request.best_of() < n || request.best_of() > limits.max_choices) {
    return InvalidArgument("best_of={} must be in [n={}, {}]", request.best_of(), n,
                           limits.max_choices);
  }
  return absl::OkStatus();
}

// Beam search looks for the most probable output: nothing that shapes sampling has a place in it.
absl::Status CheckNoSampling(const v1::SamplingParams& params) {
  constexpr std::string_view kWhy = "does not go with beam_search, which does not sample";
  if (params.has_temperature()) {
    return InvalidArgument("temperature={} {}", params.temperature(), kWhy);
  }
  if (params.has_top_k()) return InvalidArgument("top_k={} {}", params.top_k(), kWhy);
  if (params.has_top_p()) return InvalidArgument("top_p={} {}", params.top_p(), kWhy);
  if (params.has_min_p()) return InvalidArgument("min_p={} {}", params.min_p(), kWhy);
  const v1::SamplingParams p = ResolveSampling(params, 0);
  if (p.repetition_penalty() != 1) {
    return InvalidArgument("repetition_penalty={} {}: it must be 1", p.repetition_penalty(), kWhy);
  }
  if (p.presence_penalty() != 0) {
    return InvalidArgument("presence_penalty={} {}: it must be 0", p.presence_penalty(), kWhy);
  }
  if (p.frequency_penalty() != 0) {
    return InvalidArgument("frequency_penalty={} {}: it must be 0", p.frequency_penalty(), kWhy);
  }
  if (!params.logit_bias().empty()) {
    return InvalidArgument("logit_bias of {} tokens {}", params.logit_bias().size(), kWhy);
  }
  if (params.min_tokens() != 0) {
    return InvalidArgument("min_tokens={} {}: it must be 0", params.min_tokens(), kWhy);
  }
  if (!params.allowed_token_ids().empty()) {
    return InvalidArgument("allowed_token_ids of {} tokens {}", params.allowed_token_ids_size(),
                           kWhy);
  }
  return absl::OkStatus();
}

absl::Status CheckBeams(const v1::GenerateRequest& request, const RequestLimits& limits) {
  const v1::BeamSearch beams = ResolveBeams(request);
  const int32_t width = beams.beam_width();
  const BeamParams params = {.width = width, .length_penalty = beams.length_penalty()};
  RETURN_IF_ERROR(params.Validate());
  if (request.n() > width) {
    return InvalidArgument("n={} exceeds beam_width={}: a search returns at most that many",
                           request.n(), width);
  }
  if (!v1::BeamSearch::EarlyStopping_IsValid(beams.early_stopping())) {
    return InvalidArgument(
        "early_stopping={} is unknown: use 0 (heuristic), 1 (first) or 2 (never)",
        static_cast<int>(beams.early_stopping()));
  }
  if (request.stop_size() > 0) {
    return InvalidArgument("stop has {} strings; beam_search takes none: use stop_token_ids",
                           request.stop_size());
  }
  if (request.bad_words_size() > 0) {
    return InvalidArgument("bad_words has {} words; beam_search takes none",
                           request.bad_words_size());
  }
  RETURN_IF_ERROR(CheckNoSampling(request.sampling()));
  const auto stop_tokens = static_cast<int32_t>(ResolveStopTokens(request, limits).size());
  if (BeamCandidates(width, stop_tokens) > limits.max_beam_candidates) {
    return InvalidArgument(
        "stop_token_ids: {} stop tokens, EOS included, are too many for beam_width={}: at most {}",
        stop_tokens, width, limits.max_beam_candidates / width - 1);
  }
  return absl::OkStatus();
}

absl::Status CheckSlo(std::string_view field, double milliseconds) {
  if (std::isfinite(milliseconds) && milliseconds > 0) return absl::OkStatus();
  return InvalidArgument(
      "{}={} must be a number of milliseconds above 0: leave it out to keep to no limit", field,
      milliseconds);
}

}  // namespace

absl::Status ValidateRequest(const v1::GenerateRequest& request, const RequestLimits& limits) {
  if (!request.model().empty() && request.model() != limits.model) {
    RETURN_IF_ERROR(CheckUtf8("model", request.model()));
    return NotFound("model={} is not served here; this router serves {}",
                    request.model().substr(0, 80), limits.model);
  }
  RETURN_IF_ERROR(CheckPrompt(request, limits));
  RETURN_IF_ERROR(CheckSampling(request.sampling()));
  RETURN_IF_ERROR(CheckPromptFields(request));
  RETURN_IF_ERROR(CheckChoices(request, limits));
  RETURN_IF_ERROR(CheckStops(request, limits));
  RETURN_IF_ERROR(CheckConstraints(request, limits));
  if (request.has_beam_search()) RETURN_IF_ERROR(CheckBeams(request, limits));
  if (!v1::Route_IsValid(request.route())) {
    return InvalidArgument("route={} is unknown: use 0 (auto), 1 (unified) or 2 (disaggregated)",
                           static_cast<int>(request.route()));
  }
  if (request.has_ttft_slo_ms()) {
    RETURN_IF_ERROR(CheckSlo("ttft_slo_ms", request.ttft_slo_ms()));
  }
  if (request.has_tpot_slo_ms()) {
    RETURN_IF_ERROR(CheckSlo("tpot_slo_ms", request.tpot_slo_ms()));
  }
  RETURN_IF_ERROR(CheckKvFields(request));
  RETURN_IF_ERROR(CheckName("tenant", request.tenant()));
  RETURN_IF_ERROR(CheckName("cache_salt", request.cache_salt()));
  constexpr size_t kMaxSessionBytes = 256;
  if (request.session_id().size() > kMaxSessionBytes) {
    return InvalidArgument("session_id has {} bytes; at most {} are taken",
                           request.session_id().size(), kMaxSessionBytes);
  }
  return CheckName("request_id", request.request_id());
}

absl::StatusOr<int32_t> ResolveMaxTokens(const v1::GenerateRequest& request, int64_t prompt_tokens,
                                         const RequestLimits& limits) {
  const int64_t left = limits.max_context_tokens - prompt_tokens;
  if (prompt_tokens < 1) return InvalidArgument("prompt has no tokens");
  if (left < 1) {  // also with max_tokens 0: a decode worker reserves room for one token at least
    return InvalidArgument("prompt has {} tokens; the context of {} holds at most {} and one more",
                           prompt_tokens, limits.max_context_tokens, limits.max_context_tokens - 1);
  }
  if (!request.forced_token_ids().empty()) {
    if (request.forced_token_ids_size() <= left) return request.forced_token_ids_size();
    return InvalidArgument(
        "forced_token_ids of {} with a prompt of {} tokens exceed the context of {}: at most {} "
        "are "
        "left",
        request.forced_token_ids_size(), prompt_tokens, limits.max_context_tokens, left);
  }
  if (!request.has_max_tokens()) {
    const TokenConstraints constraints = {.min_tokens = request.sampling().min_tokens()};
    const int32_t wanted = std::max(limits.default_max_tokens, constraints.min_tokens);
    const auto max_tokens = static_cast<int32_t>(std::min<int64_t>(left, wanted));
    RETURN_IF_ERROR(constraints.CheckMinTokens(max_tokens));
    return max_tokens;
  }
  if (request.max_tokens() > left) {
    return InvalidArgument(
        "max_tokens={} with a prompt of {} tokens exceeds the context of {}: "
        "at most {} are left",
        request.max_tokens(), prompt_tokens, limits.max_context_tokens, left);
  }
  return request.max_tokens();
}

v1::SamplingParams ResolveSampling(const v1::SamplingParams& params, uint64_t seed) {
  v1::SamplingParams resolved = params;
  if (!params.has_temperature()) resolved.set_temperature(1);
  if (!params.has_top_k()) resolved.set_top_k(0);
  if (!params.has_top_p()) resolved.set_top_p(1);
  if (!params.has_min_p()) resolved.set_min_p(0);
  if (!params.has_repetition_penalty()) resolved.set_repetition_penalty(1);
  if (!params.has_presence_penalty()) resolved.set_presence_penalty(0);
  if (!params.has_frequency_penalty()) resolved.set_frequency_penalty(0);
  if (!params.has_seed()) resolved.set_seed(seed);
  return resolved;  // logprobs stay unset when none are wanted
}

v1::BeamSearch ResolveBeams(const v1::GenerateRequest& request) {
  v1::BeamSearch resolved = request.beam_search();
  if (!resolved.has_length_penalty()) resolved.set_length_penalty(1);
  return resolved;
}

Slo ResolveSlo(const v1::GenerateRequest& request, const RequestLimits& limits) {
  Slo slo = limits.default_slo;
  if (request.has_ttft_slo_ms()) slo.ttft = ModelTime(request.ttft_slo_ms());
  if (request.has_tpot_slo_ms()) slo.tpot = ModelTime(request.tpot_slo_ms());
  return slo;
}

std::vector<int32_t> ResolveStopTokens(const v1::GenerateRequest& request,
                                       const RequestLimits& limits) {
  if (!request.forced_token_ids().empty()) return {};  // only its last token ends a forced output
  std::vector<int32_t> ids(request.stop_token_ids().begin(), request.stop_token_ids().end());
  if (!request.ignore_eos()) {
    ids.insert(ids.end(), limits.eos_token_ids.begin(), limits.eos_token_ids.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

int32_t ResolveChoices(const v1::GenerateRequest& request) {
  if (request.has_best_of()) return request.best_of();
  return request.has_n() ? request.n() : 1;
}

}  // namespace tandem
