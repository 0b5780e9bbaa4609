#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

// How a choice ended at a worker.
enum class FinishReason : uint8_t {
  kNone,       // it goes on, or it failed and the status says why
  kStop,       // a stop token (EOS among them); it is the last token that was emitted
  kLength,     // max_tokens is reached
  kHandedOff,  // prefill worker: the decode worker acknowledged the KV
  kEnded,      // a call of EndChoice ended it
};

// Whether output number `count`, which is `token`, ends a choice: kStop, kLength or kNone. A stop
// token decides before the length does. The engine asks while it samples, its beam search for
// every candidate, and the router for a choice whose worker was lost before it reported the end.
// stop_token_ids: a range of int32_t.
template <typename Range>
FinishReason StopReasonOf(const Range& stop_token_ids, int32_t max_tokens, int32_t token,
                          int32_t count) {
  const auto end = stop_token_ids.end();
  if (std::find(stop_token_ids.begin(), end, token) != end) return FinishReason::kStop;
  return count >= max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

}  // namespace tandem
