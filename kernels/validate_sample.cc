#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "fmt/format.h"
#include "kernels/validate.h"
#include "kernels/validate_checks.h"

namespace tandem::validate {
namespace {

absl::Status CheckRange(std::string_view name, size_t row, float value, std::string_view range,
                        bool inside) {
  if (inside) return absl::OkStatus();
  return InvalidArgument("rows[{}].{} is {}, must be {}", row, name, value, range);
}

// The biases are not checked for tokens that occur twice: sorting them for every token would cost
// more than applying them.
absl::Status CheckConstraints(const SampleRow& r, size_t row, int64_t vocab) {
  if (r.given_token < -1 || r.given_token >= vocab) {
    return InvalidArgument("rows[{}].given_token is {}, must be -1 or in [0, {})", row,
                           r.given_token, vocab);
  }
  if (r.biases.size() > kMaxLogitBiases) {
    return InvalidArgument("rows[{}] has {} biases, must have at most {}", row, r.biases.size(),
                           kMaxLogitBiases);
  }
  for (const TokenBias& entry : r.biases) {
    if (entry.token_id < 0 || entry.token_id >= vocab) {
      return InvalidArgument("rows[{}].biases names token {}, must be in [0, {})", row,
                             entry.token_id, vocab);
    }
    RETURN_IF_ERROR(CheckRange("biases", row, entry.bias, "in [-100, 100]",
                               std::abs(entry.bias) <= kMaxLogitBias));
  }
  if (!HasExclusions(r)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckIds(fmt::format("rows[{}].excluded_ids", row), r.excluded_ids, vocab));
  return CheckIds(fmt::format("rows[{}].allowed_ids", row), r.allowed_ids, vocab);
}

absl::Status CheckRow(const SampleRow& r, size_t row, int64_t vocab) {
  RETURN_IF_ERROR(CheckRange("temperature", row, r.temperature, "finite and not negative",
                             std::isfinite(r.temperature) && r.temperature >= 0));
  RETURN_IF_ERROR(CheckRange("top_p", row, r.top_p, "in (0, 1]", r.top_p > 0 && r.top_p <= 1));
  RETURN_IF_ERROR(CheckRange("min_p", row, r.min_p, "in [0, 1)", r.min_p >= 0 && r.min_p < 1));
  RETURN_IF_ERROR(CheckRange("repetition_penalty", row, r.repetition_penalty, "finite and positive",
                             std::isfinite(r.repetition_penalty) && r.repetition_penalty > 0));
  RETURN_IF_ERROR(CheckRange("presence_penalty", row, r.presence_penalty, "finite",
                             std::isfinite(r.presence_penalty)));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", row, r.frequency_penalty, "finite",
                             std::isfinite(r.frequency_penalty)));
  if (r.top_k < 0) return InvalidArgument("rows[{}].top_k is {}, must be 0 or more", row, r.top_k);
  if (r.position < 0) {
    return InvalidArgument("rows[{}].position is {}, must be 0 or more", row, r.position);
  }
  if (r.num_logprobs < -1 || r.num_logprobs > vocab) {
    return InvalidArgument("rows[{}].num_logprobs is {}, must be from -1 to {}", row,
                           r.num_logprobs, vocab);
  }
  RETURN_IF_ERROR(CheckConstraints(r, row, vocab));
  if (!HasPenalties(r)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckIds(fmt::format("rows[{}].prompt_ids", row), r.prompt_ids, vocab));
  return CheckIds(fmt::format("rows[{}].output_ids", row), r.output_ids, vocab);
}

}  // namespace

absl::Status Check(const SampleArgs& a) {
  const auto num_rows = static_cast<int64_t>(a.rows.size());
  RETURN_IF_ERROR(CheckTensor("logits", a.logits, DType::kF32, {num_rows, kAny}));
  const int64_t vocab = a.logits.shape[1];
  if (vocab == 0) return InvalidArgument("logits has rows of no elements");
  if (a.out.size() != a.rows.size()) {
    return InvalidArgument("out has {} entries, must have the {} of rows", a.out.size(), num_rows);
  }
  for (size_t row = 0; row < a.rows.size(); ++row) {
    RETURN_IF_ERROR(CheckRow(a.rows[row], row, vocab));
  }
  return absl::OkStatus();
}

}  // namespace tandem::validate
