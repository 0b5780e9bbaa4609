#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "router/policy/slo.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// What is counted of requests. Times are in seconds, from the arrival of the request at the router
// where nothing else is said.
enum class RequestHistogram : uint8_t {
  kTimeToFirstToken,    // until the first token of any choice, once per request
  kInterToken,          // from one token of a choice to its next, once per token after the first
  kTimePerOutputToken,  // mean time per token after the first, once per request
  kEndToEnd,            // until the request has ended
  kQueue,               // of TTFT: until a worker began, and until a decode worker had room
  kPrefill,             // of TTFT: the computation of the prompt
  kDecode,              // from the first token to the last
  kPromptTokens,
  kGenerationTokens,  // of all choices together
};
inline constexpr size_t kNumRequestHistograms = 9;

enum class RequestCounter : uint8_t {
  kPromptTokens,      // of requests whose first token came, or that ended whole without one
  kGenerationTokens,  // of all choices
  kPrefixQueries,     // prompt tokens of requests that ended whole
  kPrefixHits,        // tokens of kPrefixQueries that the worker found in its prefix cache
  kPreemptions,       // of sequences, while requests that ended whole were computed
  // Requests by how they ended. Of several choices the longest says how.
  kStopped,
  kLength,
  kAborted,
  kFailed,
};
inline constexpr size_t kNumRequestCounters = 9;

inline constexpr size_t kNumStatusCodes = 17;  // OK to UNAUTHENTICATED

// A request that ended whole.
struct WholeRequest {
  std::string_view id;
  const v1::ChoiceFinish& longest;  // the finish of the longest choice
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;  // of all choices
  int32_t cached_tokens = 0;      // of the prompt
  int32_t preemptions = 0;
  bool looks_up_prefix = true;  // whether the prefix cache was asked at all
  bool streamed = true;         // tokens came one by one: false for a beam search
};

// Counts what a router's requests took and how they ended, for its metrics. Thread-safe. It is
// cheap enough to be called for each token.
class RequestMetrics {
 public:
  // The buckets of times also end at the limits in `slo`, so that the share of requests within them
  // is known exactly.
  explicit RequestMetrics(const Slo& slo);

  // The first token of a request came `after` its arrival.
  void OnFirstToken(std::string_view id, int32_t prompt_tokens, Duration after, TimePoint now);
  // `tokens` of one choice came, `gap` after the choice's tokens before them.
  void OnTokens(std::string_view id, int32_t tokens, Duration gap, TimePoint now);
  // The first tokens of a choice came; no gap is known for them.
  void OnFirstTokensOfChoice(int32_t tokens) { Count(RequestCounter::kGenerationTokens, tokens); }
  void OnWhole(const WholeRequest& request, TimePoint now);
  // A request has ended with this status, or was refused with it.
  void OnEnd(const absl::Status& status);

  HistogramState state(RequestHistogram which) const;
  uint64_t count(RequestCounter which) const;
  // How many requests ended with each absl::StatusCode.
  std::array<uint64_t, kNumStatusCodes> ends() const;

 private:
  Histogram& Of(RequestHistogram which) { return *histograms_[static_cast<size_t>(which)]; }
  void Count(RequestCounter which, int64_t by);

  std::array<std::unique_ptr<Histogram>, kNumRequestHistograms> histograms_;
  std::array<std::atomic<uint64_t>, kNumRequestCounters> counters_ = {};
  std::array<std::atomic<uint64_t>, kNumStatusCodes> ends_ = {};
};

}  // namespace tandem
