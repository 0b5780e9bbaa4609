#include "server/openai/common_fields.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "absl/strings/numbers.h"
#include "base/hash.h"
#include "base/sampling_params.h"
#include "base/token_bias.h"
#include "router/cluster/registration_check.h"
#include "server/openai/api_error.h"

namespace tandem::openai {
namespace {

constexpr RefusedField kRefused[] = {
    {"structured_outputs", "answers cannot be held to a format here"},
    {"guided_json", "answers cannot be held to a format here"},
    {"guided_regex", "answers cannot be held to a format here"},
    {"guided_choice", "answers cannot be held to a format here"},
    {"guided_grammar", "answers cannot be held to a format here"},
    {"logprob_token_ids", "use logprobs for those of the most probable tokens"},
    {"repetition_detection", "use repetition_penalty"},
    {"thinking_token_budget", "use max_tokens"},
    {"kv_transfer_params", "the router itself decides where KV goes"},
    {"vllm_xargs", "it has no meaning here"},
    {"logits_processors", "code of clients is not run"},
    {"prompt_embeds", "prompts are text or token ids"},
};

absl::Status CheckFormat(const BodyFields& body) {
  ASSIGN_OR_RETURN(const std::optional<BodyFields> format, body.Object("response_format"));
  if (!format) return absl::OkStatus();
  std::string type = "text";
  RETURN_IF_ERROR(format->Read("type", type));
  if (type == "text") return absl::OkStatus();
  return WithParam(Unimplemented("response_format.type={} is not supported: answers cannot be held "
                                 "to a format here; use \"text\"",
                                 JsonString(type.substr(0, 40))),
                   "response_format");
}

// Reads a field, and calls `set` with its value if there is one.
template <typename T, typename Set>
absl::Status ReadInto(const BodyFields& body, std::string_view name, const Set& set) {
  std::optional<T> value;
  RETURN_IF_ERROR(body.Read(name, value));
  if (value) set(*value);
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const BodyFields& body, v1::SamplingParams& sampling) {
  ASSIGN_OR_RETURN(const std::optional<BodyFields> biases, body.Object("logit_bias"));
  if (!biases) return absl::OkStatus();
  // Checked before anything is read, because each read of a field searches all of them.
  if (biases->json().size() > kMaxLogitBiases) {
    return WithParam(InvalidArgument("logit_bias has {} token ids; at most {} are taken",
                                     biases->json().size(), kMaxLogitBiases),
                     "logit_bias");
  }
  for (const auto& [token, bias] : biases->json().items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(token, &id)) {
      return WithParam(InvalidArgument("logit_bias[{}]: its fields must be token ids",
                                       JsonString(token.substr(0, 40))),
                       "logit_bias");
    }
    float value = 0;
    RETURN_IF_ERROR(biases->Read(token, value));
    (*sampling.mutable_logit_bias())[id] = value;
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(const BodyFields& body, v1::SamplingParams& sampling) {
  RETURN_IF_ERROR(
      ReadInto<float>(body, "temperature", [&](float value) { sampling.set_temperature(value); }));
  RETURN_IF_ERROR(ReadInto<float>(body, "top_p", [&](float value) { sampling.set_top_p(value); }));
  RETURN_IF_ERROR(ReadInto<float>(body, "min_p", [&](float value) { sampling.set_min_p(value); }));
  // -1 is another name of "all tokens" with vLLM's clients.
  RETURN_IF_ERROR(ReadInto<int32_t>(
      body, "top_k", [&](int32_t value) { sampling.set_top_k(value == -1 ? 0 : value); }));
  RETURN_IF_ERROR(ReadInto<float>(body, "repetition_penalty",
                                  [&](float value) { sampling.set_repetition_penalty(value); }));
  RETURN_IF_ERROR(ReadInto<float>(body, "presence_penalty",
                                  [&](float value) { sampling.set_presence_penalty(value); }));
  RETURN_IF_ERROR(ReadInto<float>(body, "frequency_penalty",
                                  [&](float value) { sampling.set_frequency_penalty(value); }));
  // A negative seed is valid and becomes a large unsigned one.
  RETURN_IF_ERROR(ReadInto<int64_t>(
      body, "seed", [&](int64_t value) { sampling.set_seed(static_cast<uint64_t>(value)); }));
  RETURN_IF_ERROR(ReadInto<int32_t>(body, "min_tokens",
                                    [&](int32_t value) { sampling.set_min_tokens(value); }));
  std::vector<int32_t> allowed;
  RETURN_IF_ERROR(body.Read("allowed_token_ids", allowed));
  sampling.mutable_allowed_token_ids()->Add(allowed.begin(), allowed.end());
  return ReadLogitBias(body, sampling);
}

// vLLM's beam search: n beams, all of which are returned. It does not sample, so that the fields of
// sampling, which clients send with their defaults, have no meaning.
absl::Status ReadBeams(const BodyFields& body, v1::GenerateRequest& request) {
  bool wanted = false;
  RETURN_IF_ERROR(body.Read("use_beam_search", wanted));
  if (!wanted) return absl::OkStatus();
  v1::BeamSearch& beams = *request.mutable_beam_search();
  const int32_t width = std::max(request.n(), request.best_of());
  if (width < 2) {
    return WithParam(
        InvalidArgument("use_beam_search needs n (or best_of) of 2 to {}", kMaxBeamWidth), "n");
  }
  beams.set_beam_width(width);
  request.clear_best_of();
  RETURN_IF_ERROR(ReadInto<float>(body, "length_penalty",
                                  [&](float value) { beams.set_length_penalty(value); }));
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.clear_temperature();
  sampling.clear_top_p();
  sampling.clear_top_k();
  sampling.clear_min_p();
  return absl::OkStatus();
}

absl::Status ReadChoices(const BodyFields& body, v1::GenerateRequest& request) {
  RETURN_IF_ERROR(ReadInto<int32_t>(body, "n", [&](int32_t value) { request.set_n(value); }));
  return ReadInto<int32_t>(body, "best_of", [&](int32_t value) { request.set_best_of(value); });
}

absl::Status ReadEnds(const BodyFields& body, v1::GenerateRequest& request) {
  std::vector<std::string> stops;
  RETURN_IF_ERROR(body.Read("stop", stops));
  request.mutable_stop()->Add(stops.begin(), stops.end());
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(body.Read("stop_token_ids", ids));
  request.mutable_stop_token_ids()->Add(ids.begin(), ids.end());
  RETURN_IF_ERROR(
      ReadInto<bool>(body, "ignore_eos", [&](bool value) { request.set_ignore_eos(value); }));
  return ReadInto<bool>(body, "include_stop_str_in_output",
                        [&](bool value) { request.set_include_stop(value); });
}

absl::Status ReadTexts(const BodyFields& body, v1::GenerateRequest& request) {
  std::vector<std::string> bad_words;
  RETURN_IF_ERROR(body.Read("bad_words", bad_words));
  request.mutable_bad_words()->Add(bad_words.begin(), bad_words.end());
  RETURN_IF_ERROR(ReadInto<bool>(body, "skip_special_tokens",
                                 [&](bool value) { request.set_skip_special_tokens(value); }));
  return ReadInto<int32_t>(body, "truncate_prompt_tokens", [&](int32_t value) {
    // -1 asks to cut a prompt to what fits. It is ignored: a prompt that is too long is refused.
    if (value != -1) request.set_truncate_prompt_tokens(value);
  });
}

absl::Status ReadRoute(const BodyFields& body, v1::GenerateRequest& request) {
  std::string route = "auto";
  RETURN_IF_ERROR(body.Read("route", route));
  if (route == "unified") {
    request.set_route(v1::ROUTE_UNIFIED);
  } else if (route == "disaggregated") {
    request.set_route(v1::ROUTE_DISAGGREGATED);
  } else if (route != "auto") {
    return WithParam(InvalidArgument("route={} is unknown: use \"auto\", \"unified\" or "
                                     "\"disaggregated\"",
                                     JsonString(route.substr(0, 40))),
                     "route");
  }
  return absl::OkStatus();
}

// Clients put anything into `user`, but the name of a tenant is printed in logs and metrics.
std::string TenantOf(const std::string& user) {
  if (CheckName("user", user).ok()) return user;
  return fmt::format("user-{:016x}", Hash64(std::as_bytes(std::span(user))));
}

// Reads the fields that say by which route and when a request is served, and for which tenant.
absl::Status ReadPlacement(const BodyFields& body, v1::GenerateRequest& request) {
  RETURN_IF_ERROR(ReadRoute(body, request));
  RETURN_IF_ERROR(ReadInto<std::string>(
      body, "user", [&](const std::string& user) { request.set_tenant(TenantOf(user)); }));
  RETURN_IF_ERROR(ReadInto<std::string>(
      body, "tenant", [&](const std::string& tenant) { request.set_tenant(tenant); }));
  RETURN_IF_ERROR(ReadInto<std::string>(
      body, "cache_salt", [&](const std::string& salt) { request.set_cache_salt(salt); }));
  RETURN_IF_ERROR(ReadInto<std::string>(
      body, "kv_quality", [&](const std::string& quality) { request.set_kv_quality(quality); }));
  RETURN_IF_ERROR(ReadInto<std::string>(
      body, "kv_eviction", [&](const std::string& text) { request.set_kv_eviction(text); }));
  RETURN_IF_ERROR(ReadInto<std::string>(
      body, "session_id", [&](const std::string& session) { request.set_session_id(session); }));
  RETURN_IF_ERROR(ReadInto<std::string>(
      body, "request_id", [&](const std::string& id) { request.set_request_id(id); }));
  RETURN_IF_ERROR(
      ReadInto<double>(body, "ttft_slo_ms", [&](double value) { request.set_ttft_slo_ms(value); }));
  RETURN_IF_ERROR(
      ReadInto<double>(body, "tpot_slo_ms", [&](double value) { request.set_tpot_slo_ms(value); }));
  // With vLLM's clients the lower number goes first.
  return ReadInto<int32_t>(body, "priority", [&](int32_t value) {
    request.set_priority(-std::max(value, -std::numeric_limits<int32_t>::max()));
  });
}

absl::Status ReadStreaming(const BodyFields& body, AnswerOptions& answer) {
  RETURN_IF_ERROR(body.Read("stream", answer.stream));
  ASSIGN_OR_RETURN(const std::optional<BodyFields> options, body.Object("stream_options"));
  if (!options) return absl::OkStatus();
  if (!answer.stream && !IsNeutral(options->json())) {
    return WithParam(InvalidArgument("stream_options goes with stream=true only"),
                     "stream_options");
  }
  RETURN_IF_ERROR(options->Read("include_usage", answer.include_usage));
  return options->Read("continuous_usage_stats", answer.continuous_usage);
}

absl::Status ReadAnswer(const BodyFields& body, v1::GenerateRequest& request,
                        AnswerOptions& answer) {
  RETURN_IF_ERROR(ReadStreaming(body, answer));
  RETURN_IF_ERROR(body.Read("return_tokens_as_token_ids", answer.tokens_as_ids));
  RETURN_IF_ERROR(body.Read("return_token_ids", answer.return_token_ids));
  RETURN_IF_ERROR(body.Read("return_timing", answer.return_timing));
  std::optional<int32_t> prompt_logprobs;
  RETURN_IF_ERROR(body.Read("prompt_logprobs", prompt_logprobs));
  if (!prompt_logprobs) return absl::OkStatus();
  if (answer.stream) {
    return WithParam(InvalidArgument("prompt_logprobs does not go with stream=true"),
                     "prompt_logprobs");
  }
  RETURN_IF_ERROR(CheckPromptLogprobs(request, "prompt_logprobs"));
  answer.prompt_logprobs = true;
  request.set_prompt_logprobs(*prompt_logprobs);
  return absl::OkStatus();
}

}  // namespace

absl::Status RefuseFields(const BodyFields& body, std::span<const RefusedField> fields) {
  for (const RefusedField& field : fields) {
    const Json* value = body.Find(field.name);
    if (value == nullptr || IsNeutral(*value)) continue;
    return WithParam(Unimplemented("{} is not supported: {}", field.name, field.why), field.name);
  }
  return absl::OkStatus();
}

absl::Status CheckPromptLogprobs(const v1::GenerateRequest& request, std::string_view field) {
  const int32_t choices = std::max(request.n(), request.best_of());
  if (choices <= 1) return absl::OkStatus();
  return WithParam(InvalidArgument("{} asks for log-probabilities of the prompt, which go with one "
                                   "choice only; n (or best_of) is {}: use 1",
                                   field, choices),
                   field);
}

bool IsNeutral(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

absl::Status ReadCommonFields(const BodyFields& body, v1::GenerateRequest& request,
                              AnswerOptions& answer) {
  RETURN_IF_ERROR(RefuseFields(body, kRefused));
  RETURN_IF_ERROR(CheckFormat(body));
  RETURN_IF_ERROR(ReadInto<std::string>(
      body, "model", [&](const std::string& model) { request.set_model(model); }));
  RETURN_IF_ERROR(ReadSampling(body, *request.mutable_sampling()));
  RETURN_IF_ERROR(ReadChoices(body, request));
  RETURN_IF_ERROR(ReadBeams(body, request));
  RETURN_IF_ERROR(ReadEnds(body, request));
  RETURN_IF_ERROR(ReadTexts(body, request));
  RETURN_IF_ERROR(ReadPlacement(body, request));
  return ReadAnswer(body, request, answer);
}

}  // namespace tandem::openai
