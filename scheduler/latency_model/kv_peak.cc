#include "scheduler/latency_model/kv_peak.h"

#include <algorithm>

namespace tandem {

double PeakKvTokens(std::vector<DecodeGroup> sequences) {
  std::sort(sequences.begin(), sequences.end(), [](const DecodeGroup& a, const DecodeGroup& b) {
    return a.remaining_tokens > b.remaining_tokens;
  });
  // The total only falls when a sequence ends, so it is largest just before one of the ends. At that
  // moment the sequences that end later, or then, are those up to here in this order.
  double count = 0;
  double context = 0;
  double peak = 0;
  for (const DecodeGroup& group : sequences) {
    count += group.count;
    context += group.count * group.context_tokens;
    peak = std::max(peak, context + count * std::max(0.0, group.remaining_tokens));
  }
  return peak;
}

}  // namespace tandem
