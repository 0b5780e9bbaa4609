#include "base/token_constraints.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

absl::Status CheckIds(std::string_view field, std::span<const int32_t> ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return InvalidArgument("{}[{}]={} must be in [0, {})", field, i, ids[i], vocab_size);
  }
  return absl::OkStatus();
}

template <typename T>
void SortUnique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

absl::Status TokenConstraints::Validate(int32_t vocab_size,
                                        std::span<const int32_t> stop_token_ids) const {
  RETURN_IF_ERROR(CheckBiases(vocab_size));
  if (min_tokens < 0) return InvalidArgument("min_tokens={} must be 0 or more", min_tokens);
  if (allowed_token_ids.size() > kMaxAllowedTokens) {
    return InvalidArgument("allowed_token_ids has {} ids; at most {} are taken",
                           allowed_token_ids.size(), kMaxAllowedTokens);
  }
  RETURN_IF_ERROR(CheckIds("allowed_token_ids", allowed_token_ids, vocab_size));
  RETURN_IF_ERROR(CheckBadWords(vocab_size));
  RETURN_IF_ERROR(CheckIds("stop_token_ids", stop_token_ids, vocab_size));
  RETURN_IF_ERROR(CheckIds("forced_token_ids", forced_token_ids, vocab_size));
  RETURN_IF_ERROR(CheckNothingShapesForced(stop_token_ids));
  return CheckSomethingLeft(vocab_size, stop_token_ids);
}

absl::Status TokenConstraints::CheckMinTokens(int32_t max_tokens) const {
  if (min_tokens <= max_tokens) return absl::OkStatus();
  return InvalidArgument("min_tokens={} must be at most max_tokens={}", min_tokens, max_tokens);
}

absl::Status TokenConstraints::CheckForced(int32_t width, int32_t max_tokens) const {
  if (forced_token_ids.empty()) return absl::OkStatus();
  if (width != 1) {
    return InvalidArgument(
        "forced_token_ids are one output: they do not go with {} choices or beams (n, best_of, "
        "beam_search)",
        width);
  }
  if (max_tokens == std::ssize(forced_token_ids)) return absl::OkStatus();
  return InvalidArgument("max_tokens={} contradicts forced_token_ids, which are {}: leave it out",
                         max_tokens, forced_token_ids.size());
}

// Checks that forced output comes without options that would change which token is sampled or end
// the output, because nothing is sampled.
absl::Status TokenConstraints::CheckNothingShapesForced(
    std::span<const int32_t> stop_token_ids) const {
  if (forced_token_ids.empty()) return absl::OkStatus();
  constexpr std::string_view kWhy = "does not go with forced_token_ids: nothing is sampled";
  if (!logit_bias.empty()) {
    return InvalidArgument("logit_bias of {} tokens {}", logit_bias.size(), kWhy);
  }
  if (!allowed_token_ids.empty()) {
    return InvalidArgument("allowed_token_ids of {} tokens {}", allowed_token_ids.size(), kWhy);
  }
  if (!bad_words.empty()) {
    return InvalidArgument("bad_words of {} token sequences {}", bad_words.size(), kWhy);
  }
  if (min_tokens != 0) return InvalidArgument("min_tokens={} {}", min_tokens, kWhy);
  if (stop_token_ids.empty()) return absl::OkStatus();
  return InvalidArgument("stop_token_ids of {} tokens do not go with forced_token_ids",
                         stop_token_ids.size());
}

// Checks the ids and values of logit_bias. NaN is in no range.
absl::Status TokenConstraints::CheckBiases(int32_t vocab_size) const {
  if (logit_bias.size() > kMaxLogitBiases) {
    return InvalidArgument("logit_bias has {} entries; at most {} are taken", logit_bias.size(),
                           kMaxLogitBiases);
  }
  std::vector<int32_t> ids;
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument("logit_bias: token {} must be in [0, {})", id, vocab_size);
    }
    if (!(bias >= -kMaxLogitBias && bias <= kMaxLogitBias)) {
      return InvalidArgument("logit_bias[{}]={} must be in [{}, {}]", id, bias, -kMaxLogitBias,
                             kMaxLogitBias);
    }
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return absl::OkStatus();
  return InvalidArgument("logit_bias names token {} twice: give one bias", *twice);
}

absl::Status TokenConstraints::CheckBadWords(int32_t vocab_size) const {
  if (bad_words.size() > 2 * kMaxBadWords) {
    return InvalidArgument("bad_words has {} token sequences; at most {} are taken",
                           bad_words.size(), 2 * kMaxBadWords);
  }
  for (const std::vector<int32_t>& word : bad_words) {
    if (word.empty()) return InvalidArgument("bad_words has a word without tokens");
    RETURN_IF_ERROR(CheckIds("bad_words", word, vocab_size));
  }
  return absl::OkStatus();
}

// Checks that some token may be the first of the output. What later steps exclude depends on the
// output, and a step that excludes all tokens fails its request.
absl::Status TokenConstraints::CheckSomethingLeft(int32_t vocab_size,
                                                  std::span<const int32_t> stop_token_ids) const {
  std::vector<int32_t> excluded;
  AppendExcluded({}, stop_token_ids, excluded);
  SortUnique(excluded);
  std::vector<int32_t> allowed = allowed_token_ids;
  SortUnique(allowed);
  const auto is_excluded = [&excluded](int32_t id) {
    return std::binary_search(excluded.begin(), excluded.end(), id);
  };
  const bool left = allowed.empty() ? std::ssize(excluded) < vocab_size
                                    : !std::all_of(allowed.begin(), allowed.end(), is_excluded);
  if (left) return absl::OkStatus();
  return InvalidArgument(
      "allowed_token_ids, min_tokens={} and bad_words leave no token that may be sampled",
      min_tokens);
}

void TokenConstraints::AppendExcluded(std::span<const int32_t> output,
                                      std::span<const int32_t> stop_token_ids,
                                      std::vector<int32_t>& excluded) const {
  if (output.size() < static_cast<size_t>(min_tokens)) {
    excluded.insert(excluded.end(), stop_token_ids.begin(), stop_token_ids.end());
  }
  for (const std::vector<int32_t>& word : bad_words) {
    const std::span<const int32_t> before = std::span(word).first(word.size() - 1);
    if (before.size() > output.size()) continue;
    const std::span<const int32_t> latest = output.last(before.size());
    if (std::equal(before.begin(), before.end(), latest.begin())) excluded.push_back(word.back());
  }
}

}  // namespace tandem
