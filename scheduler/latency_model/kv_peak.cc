#include "scheduler/latency_model/kv_peak.h"

#include <algorithm>

namespace tandem {

double PeakKvTokens(std::vector<DecodeGroup> sequences) {
  std::sort(sequences.begin(), sequences.end(), [](const DecodeGroup& a, const DecodeGroup& b) {
    return a.remaining_tokens > b.remaining_tokens;
  });
  // The sum of all KV only falls when a sequence ends, so it is largest just before the end of one.
  // In this order, by descending end, the sequences that still live at the end of one are those up
  // to it.
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
