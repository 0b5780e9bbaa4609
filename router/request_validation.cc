#include "router/request_validation.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "base/utf8.h"

namespace tandem {
namespace {

// A field of floats with its range; NaN is in no range.
struct FloatRange {
  std::string_view field;
  float min;
  float max;
  enum class End : uint8_t { kIncluded, kExcluded };
  End low = End::kIncluded;
  End high = End::kIncluded;
};

absl::Status CheckFloat(const FloatRange& range, float value) {
  const bool low = range.low == FloatRange::End::kIncluded;
  const bool high = range.high == FloatRange::End::kIncluded;
  const bool inside = (low ? value >= range.min : value > range.min) &&
                      (high ? value <= range.max : value < range.max);
  if (inside) return absl::OkStatus();
  return InvalidArgument("{}={} must be in {}{}, {}{}", range.field, value, low ? '[' : '(',
                         range.min, range.max, high ? ']' : ')');
}

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
      return CheckUtf8("text", request.text());
    case v1::GenerateRequest::kTokenIds:
      if (request.token_ids().ids().empty()) {
        return InvalidArgument("token_ids is empty: a prompt needs a token");
      }
      return CheckTokenIds("token_ids", request.token_ids().ids(), limits.vocab_size);
  }
  return absl::OkStatus();
}

// As workers do (SamplingParams::Validate), which the router does not see.
absl::Status CheckSampling(const v1::SamplingParams& params, const RequestLimits& limits) {
  constexpr float kMaxTemperature = 100;
  constexpr float kMaxRepetition = 100;
  constexpr float kMaxPenalty = 2;
  const v1::SamplingParams p = ResolveSampling(params, 0);
  RETURN_IF_ERROR(CheckFloat({"temperature", 0, kMaxTemperature}, p.temperature()));
  if (p.top_k() < 0) return InvalidArgument("top_k={} must be 0 (all) or more", p.top_k());
  RETURN_IF_ERROR(CheckFloat({"top_p", 0, 1, FloatRange::End::kExcluded}, p.top_p()));
  RETURN_IF_ERROR(CheckFloat(
      {"min_p", 0, 1, FloatRange::End::kIncluded, FloatRange::End::kExcluded}, p.min_p()));
  RETURN_IF_ERROR(CheckFloat({"repetition_penalty", 0, kMaxRepetition, FloatRange::End::kExcluded},
                             p.repetition_penalty()));
  RETURN_IF_ERROR(
      CheckFloat({"presence_penalty", -kMaxPenalty, kMaxPenalty}, p.presence_penalty()));
  RETURN_IF_ERROR(
      CheckFloat({"frequency_penalty", -kMaxPenalty, kMaxPenalty}, p.frequency_penalty()));
  if (params.has_logprobs() && (p.logprobs() < 0 || p.logprobs() > limits.max_logprobs)) {
    return InvalidArgument("logprobs={} must be in [0, {}]", p.logprobs(), limits.max_logprobs);
  }
  return absl::OkStatus();
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

// They are shown on log lines: no spaces, no control characters.
absl::Status CheckName(std::string_view field, std::string_view name) {
  constexpr size_t kMaxBytes = 128;
  if (name.size() > kMaxBytes) {
    return InvalidArgument("{} has {} bytes; at most {} are taken", field, name.size(), kMaxBytes);
  }
  const auto printable = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!std::all_of(name.begin(), name.end(), printable)) {
    return InvalidArgument("{} may hold printable ASCII without spaces only", field);
  }
  return absl::OkStatus();
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
  return absl::OkStatus();
}

absl::Status CheckBeams(const v1::GenerateRequest& request, const RequestLimits& limits) {
  constexpr float kMaxLengthPenalty = 10;
  const v1::BeamSearch& beams = request.beam_search();
  const int32_t width = beams.beam_width();
  if (width < 2 || width > limits.max_beam_width) {
    return InvalidArgument("beam_width={} must be in [2, {}]", width, limits.max_beam_width);
  }
  if (request.n() > width) {
    return InvalidArgument("n={} exceeds beam_width={}: a search returns at most that many",
                           request.n(), width);
  }
  if (beams.has_length_penalty()) {
    RETURN_IF_ERROR(CheckFloat({"length_penalty", -kMaxLengthPenalty, kMaxLengthPenalty},
                               beams.length_penalty()));
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
  RETURN_IF_ERROR(CheckNoSampling(request.sampling()));
  const auto stop_tokens = static_cast<int32_t>(ResolveStopTokens(request, limits).size());
  if ((1 + stop_tokens) * width > limits.max_beam_candidates) {
    return InvalidArgument(
        "stop_token_ids: {} stop tokens, EOS included, are too many for beam_width={}: at most {}",
        stop_tokens, width, limits.max_beam_candidates / width - 1);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateRequest(const v1::GenerateRequest& request, const RequestLimits& limits) {
  if (!request.model().empty() && request.model() != limits.model) {
    RETURN_IF_ERROR(CheckUtf8("model", request.model()));
    return NotFound("model={} is not served here; this router serves {}",
                    request.model().substr(0, 80), limits.model);
  }
  RETURN_IF_ERROR(CheckPrompt(request, limits));
  RETURN_IF_ERROR(CheckSampling(request.sampling(), limits));
  if (request.has_max_tokens() && request.max_tokens() < 1) {
    return InvalidArgument("max_tokens={} must be at least 1", request.max_tokens());
  }
  RETURN_IF_ERROR(CheckChoices(request, limits));
  RETURN_IF_ERROR(CheckStops(request, limits));
  if (request.has_beam_search()) RETURN_IF_ERROR(CheckBeams(request, limits));
  if (!v1::Route_IsValid(request.route())) {
    return InvalidArgument("route={} is unknown: use 0 (auto), 1 (unified) or 2 (disaggregated)",
                           static_cast<int>(request.route()));
  }
  RETURN_IF_ERROR(CheckName("tenant", request.tenant()));
  RETURN_IF_ERROR(CheckName("cache_salt", request.cache_salt()));
  return CheckName("request_id", request.request_id());
}

absl::StatusOr<int32_t> ResolveMaxTokens(const v1::GenerateRequest& request, int64_t prompt_tokens,
                                         const RequestLimits& limits) {
  const int64_t left = limits.max_context_tokens - prompt_tokens;
  if (prompt_tokens < 1) return InvalidArgument("prompt has no tokens");
  if (left < 1) {
    return InvalidArgument("prompt has {} tokens; the context of {} holds at most {} and one more",
                           prompt_tokens, limits.max_context_tokens, limits.max_context_tokens - 1);
  }
  if (!request.has_max_tokens()) {
    return static_cast<int32_t>(std::min<int64_t>(left, limits.default_max_tokens));
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

std::vector<int32_t> ResolveStopTokens(const v1::GenerateRequest& request,
                                       const RequestLimits& limits) {
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
