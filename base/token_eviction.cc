#include "base/token_eviction.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

constexpr std::string_view kForm =
    "POLICY:RATIO[,sink=N][,recent=N][,span=N][,output=keep|evict], as in h2o-ema:2";

// The text before the first `separator` of `text`, and the text behind it.
std::pair<std::string_view, std::string_view> Cut(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

template <class Number>
std::optional<Number> ToNumber(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

absl::Status ParsePolicy(std::string_view text, TokenEviction& eviction) {
  const auto& names = kTokenEvictionPolicyNames;
  const auto* const name = std::find(names.begin(), names.end(), text);
  if (name == names.end()) {
    return InvalidArgument("the eviction policy \"{}\" is unknown: use {}", text,
                           fmt::join(names, ", "));
  }
  eviction.policy = static_cast<TokenEvictionPolicy>(name - names.begin());
  return absl::OkStatus();
}

absl::Status ParseOutput(std::string_view text, TokenEviction& eviction) {
  if (text != "keep" && text != "evict") {
    return InvalidArgument("the eviction option output=\"{}\" must be keep or evict", text);
  }
  eviction.output = text == "evict";
  return absl::OkStatus();
}

absl::Status ParseOption(std::string_view text, TokenEviction& eviction) {
  const auto [name, number] = Cut(text, '=');
  if (name == "output") return ParseOutput(number, eviction);
  int32_t* const value = name == "sink"     ? &eviction.sink_tokens
                         : name == "recent" ? &eviction.recent_tokens
                         : name == "span"   ? &eviction.span_tokens
                                            : nullptr;
  if (value == nullptr) {
    return InvalidArgument("the eviction option \"{}\" is unknown: the form is {}", name, kForm);
  }
  const bool is_span = value == &eviction.span_tokens;
  const std::optional<int32_t> parsed = ToNumber<int32_t>(number);
  if (!parsed || *parsed < 0 || *parsed > TokenEviction::kMaxKept ||
      (is_span && !std::has_single_bit(static_cast<uint32_t>(*parsed)))) {
    return InvalidArgument("the eviction option {}=\"{}\" must be {} from {} to {}", name, number,
                           is_span ? "a power of two" : "a number", is_span ? 1 : 0,
                           TokenEviction::kMaxKept);
  }
  *value = *parsed;
  return absl::OkStatus();
}

}  // namespace

// The first and last tokens are kept in any case. The tokens between them are cut into spans from
// the front. What is left over at their end is less than a span, and is kept as well, so that all
// layers keep equally many tokens.
int32_t TokenEviction::StoredTokens(int32_t prompt_tokens) const {
  const int64_t always = int64_t{sink_tokens} + recent_tokens;
  if (prompt_tokens <= always + span_tokens) return prompt_tokens;
  const int64_t middle = prompt_tokens - always;
  const int64_t fixed = always + middle % span_tokens;
  const auto wanted = static_cast<int64_t>(std::ceil(prompt_tokens / ratio));
  const int64_t spans = std::max<int64_t>(0, (wanted - fixed + span_tokens - 1) / span_tokens);
  return static_cast<int32_t>(std::clamp<int64_t>(fixed + spans * span_tokens, 1, prompt_tokens));
}

int32_t TokenEviction::WindowTokens() const {
  switch (policy) {
    case TokenEvictionPolicy::kH2oEma:
      return 512;
    case TokenEvictionPolicy::kH2oSum:
      return 1024;  // as many rows as Ops::ColumnMass takes at once
    case TokenEvictionPolicy::kSnapKv:
      return 64;
    case TokenEvictionPolicy::kStreamingLlm:
    case TokenEvictionPolicy::kRandom:
      return 0;
  }
  return 0;
}

std::string ToString(const TokenEviction& eviction) {
  const TokenEviction defaults;
  std::string text = fmt::format("{}:{}", Name(eviction.policy), eviction.ratio);
  const auto append = [&](std::string_view name, int32_t value, int32_t usual) {
    if (value != usual) text += fmt::format(",{}={}", name, value);
  };
  append("sink", eviction.sink_tokens, defaults.sink_tokens);
  append("recent", eviction.recent_tokens, defaults.recent_tokens);
  append("span", eviction.span_tokens, defaults.span_tokens);
  if (!eviction.output) text += ",output=keep";
  return text;
}

absl::StatusOr<TokenEviction> ParseTokenEviction(std::string_view text) {
  TokenEviction eviction;
  const auto [head, options] = Cut(text, ',');
  const auto [policy, ratio] = Cut(head, ':');
  RETURN_IF_ERROR(ParsePolicy(policy, eviction));
  eviction.ratio = ToNumber<double>(ratio).value_or(0);
  if (!(eviction.ratio > 1) || eviction.ratio > TokenEviction::kMaxRatio) {
    return InvalidArgument(
        "the eviction ratio \"{}\" must be a number above 1 and at most {}: the form is {}", ratio,
        TokenEviction::kMaxRatio, kForm);
  }
  for (std::string_view left = options; !left.empty();) {
    const auto [option, rest] = Cut(left, ',');
    RETURN_IF_ERROR(ParseOption(option, eviction));
    left = rest;
  }
  if (eviction.sink_tokens + eviction.recent_tokens == 0) {
    return InvalidArgument("eviction {} keeps no token for sure: set sink or recent", text);
  }
  return eviction;
}

}  // namespace tandem
