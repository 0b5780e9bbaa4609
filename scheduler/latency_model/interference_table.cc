#include "scheduler/latency_model/interference_table.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/status.h"
#include "scheduler/latency_model/step_features.h"

namespace tandem {
namespace {

template <typename T>
absl::Status CheckAxis(std::string_view name, const std::vector<T>& axis, T least) {
  if (axis.empty()) return InvalidArgument("the gamma table has no values of {}", name);
  if (axis.front() < least) {
    return InvalidArgument("the gamma table has {} = {}: it must be at least {}", name,
                           axis.front(), least);
  }
  for (size_t i = 1; i < axis.size(); ++i) {
    if (axis[i] <= axis[i - 1]) {
      return InvalidArgument("the gamma table has {} = {} after {}: values must rise", name,
                             axis[i], axis[i - 1]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGrid(const InterferenceGrid& grid) {
  RETURN_IF_ERROR(CheckAxis("tokens", grid.tokens, 1));
  RETURN_IF_ERROR(CheckAxis("sequences", grid.sequences, 1));
  RETURN_IF_ERROR(CheckAxis("context", grid.context, 0));
  const size_t cells = grid.tokens.size() * grid.sequences.size() * grid.context.size();
  if (grid.gamma_ms.size() != cells) {
    return InvalidArgument("the gamma table has {} cells: its axes need {}", grid.gamma_ms.size(),
                           cells);
  }
  for (const double gamma : grid.gamma_ms) {
    if (!std::isfinite(gamma) || gamma < 0) {
      return InvalidArgument(
          "the gamma table has a cell of {} ms: costs are finite and not negative", gamma);
    }
  }
  return absl::OkStatus();
}

// The position of a value between two neighbouring points of an axis. A value outside of the axis
// is taken to lie at its nearer end.
struct Between {
  size_t low = 0;
  size_t high = 0;
  double share = 0;  // weight of the point `high`, from 0 to 1
};

template <typename T>
Between Find(const std::vector<T>& axis, double value) {
  if (value <= static_cast<double>(axis.front())) return {};
  const size_t last = axis.size() - 1;
  size_t high = 1;
  while (high <= last && static_cast<double>(axis[high]) < value) ++high;
  if (high > last) return {.low = last, .high = last};
  const auto from = static_cast<double>(axis[high - 1]);
  const double width = static_cast<double>(axis[high]) - from;
  return {.low = high - 1, .high = high, .share = (value - from) / width};
}

}  // namespace

absl::StatusOr<InterferenceTable> InterferenceTable::Create(const InterferenceGrid& grid,
                                                            const Costs& costs) {
  InterferenceTable table;
  if (grid.empty() && grid.tokens.empty()) return table;
  RETURN_IF_ERROR(CheckGrid(grid));
  table.grid_ = grid;
  table.token_ms_ = costs.token_ms;
  table.added_ms_.resize(grid.gamma_ms.size());
  for (size_t n = 0; n < grid.tokens.size(); ++n) {
    const double tokens = grid.tokens[n];
    const double attention = costs.pair_ms * static_cast<double>(CausalPairs(0, grid.tokens[n]));
    for (size_t b = 0; b < grid.sequences.size(); ++b) {
      for (size_t c = 0; c < grid.context.size(); ++c) {
        double added = std::max(0.0, tokens * grid.gamma_ms[grid.Index(n, b, c)] - attention);
        if (n > 0) added = std::max(added, table.added_ms_[grid.Index(n - 1, b, c)]);
        if (b > 0) added = std::max(added, table.added_ms_[grid.Index(n, b - 1, c)]);
        if (c > 0) {
          const double before = table.added_ms_[grid.Index(n, b, c - 1)];
          const double more = grid.sequences[b] * (1.0 * grid.context[c] - grid.context[c - 1]);
          added = std::clamp(added, std::max(0.0, before - costs.context_token_ms * more), before);
        }
        table.added_ms_[grid.Index(n, b, c)] = added;
      }
    }
  }
  return table;
}

double InterferenceTable::AddedMs(double tokens, double sequences, double context) const {
  const Between b = Find(grid_.sequences, sequences);
  const Between c = Find(grid_.context, context / std::max(1.0, sequences));
  const auto at = [&](size_t n) {
    const auto along_context = [&](size_t row) {
      const double low = added_ms_[grid_.Index(n, row, c.low)];
      return low + c.share * (added_ms_[grid_.Index(n, row, c.high)] - low);
    };
    const double low = along_context(b.low);
    return b.share == 0 ? low : low + b.share * (along_context(b.high) - low);
  };
  const double first = grid_.tokens.front();
  const double last = grid_.tokens.back();
  if (tokens <= first) return at(0) * tokens / first;
  if (tokens >= last) return at(grid_.tokens.size() - 1) + token_ms_ * (tokens - last);
  const Between n = Find(grid_.tokens, tokens);
  const double low = at(n.low);
  return low + n.share * (at(n.high) - low);
}

}  // namespace tandem
