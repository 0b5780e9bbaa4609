#pragma once

#include <cstdint>
#include <optional>

#include "scheduler/latency_model/link_model.h"
#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// A request whose placement is to be predicted.
struct RequestShape {
  int32_t prompt_tokens = 0;  // at least 1
  double output_tokens = 1;   // of each sequence, that are expected, the first included; at least 1
  int32_t sequences = 1;      // that decode beside each other after the prompt
  // Tokens of the prompt whose KV is evicted at its end: they are neither moved nor read by decodes, and
  // what stays is moved after the whole prompt was computed.
  int32_t evicted_tokens = 0;

  int32_t stored_tokens() const { return prompt_tokens - evicted_tokens; }
};

// What of a request's KV moves to a decode worker, and how.
struct KvTransferShape {
  int64_t bytes_per_token = 0;
  int32_t layers = 1;
  int32_t block_tokens = 16;
  // What a hand-off takes beside its bytes, as far as the prefill does not hide it.
  ModelTime hand_off{};
};

// Where the predicted time goes. The stages add up: messages, admission, queue and prefill to the
// time to first token, and with the two others to the end of the output.
struct PredictedStages {
  ModelTime messages{};   // between router and workers, until the first token is at the router
  ModelTime admission{};  // until the decode worker has room; it is asked first
  ModelTime queue{};      // then until the first chunk of the prompt runs
  ModelTime prefill{};    // until the first token
  ModelTime transfer{};   // what of handing the KV over the prefill does not hide
  ModelTime decode{};  // all further tokens, the wait for the step in progress included; on average
};

struct PlacementPrediction {
  PredictedStages stages;
  ModelTime hand_off{};  // of stages.transfer: what its bytes do not explain
  // By how much the mean of stages.decode, and so of tpot and e2e, is above what the output most likely
  // takes (DecodeTime::likely_ms). Costs are about means.
  ModelTime unlikely{};
  ModelTime ttft{};
  ModelTime tpot{};  // mean time per token after the first; 0 when there is only one
  ModelTime e2e{};
  // What the request costs the sequences that decode beside it: the time added to each of them,
  // summed over all.
  ModelTime externality{};
  // The mean output of those sequences; 0 where nothing is known of them.
  double others_output_tokens = 0;
  // How much later the first tokens of the requests come that are yet to be sent and find the worker
  // busy with this prompt, summed over these.
  ModelTime later_prompts{};
  // The same of all prompts that come until the worker has none left, as far as that can be foreseen.
  ModelTime backlog_prompts{};
  // How much later the KV arrives of the requests that come until the link has none left to carry that is
  // sent before this request's, summed over these.
  ModelTime backlog_transfers{};
};

// The prediction for prefill and decode on one worker, `cached_tokens` of the prompt being in its
// prefix cache. Nothing when the request does not fit into the worker even alone.
std::optional<PlacementPrediction> PredictUnified(const WorkerState& worker,
                                                  const RequestShape& request,
                                                  int32_t cached_tokens);

// The two halves of a disaggregated placement. With P prefill and D decode workers, P + D of them
// and P x D joins, which are cheap, predict all pairs.
struct PrefillForecast {
  ModelTime queue{};
  ModelTime prefill{};
  ModelTime externality{};
  ModelTime later_prompts{};
  ModelTime messages{};
  ModelTime backlog_prompts{};
  int32_t chunks = 1;    // steps that compute the prompt
  ArrivalRates usual{};  // at the worker, and so on its link
};
std::optional<PrefillForecast> ForecastPrefill(const WorkerState& worker,
                                               const RequestShape& request, int32_t cached_tokens);

struct DecodeForecast {
  ModelTime admission{};
  ModelTime wait{};  // from the arrival of the KV until the sequence's first step begins
  ModelTime decode{};
  ModelTime unlikely{};  // of decode
  ModelTime externality{};
  double others_output_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt: they need not be moved
};
// `kv_arrives` is the time until the KV is there, if the worker admits the request at once. An
// estimate does: the fastest prefill, say.
std::optional<DecodeForecast> ForecastDecode(const WorkerState& worker, const RequestShape& request,
                                             int32_t cached_tokens, ModelTime kv_arrives);

// `streams` is the number of streams on the link, this one included. `ahead`: for how long the link has
// KV of other requests to carry when this prefill begins.
PlacementPrediction JoinDisaggregated(const RequestShape& request, const KvTransferShape& kv,
                                      const PrefillForecast& prefill, const DecodeForecast& decode,
                                      const LinkModel& link, int32_t streams,
                                      ModelTime ahead = ModelTime::zero());

// The same placement without what is unlikely: the times that are compared with what comes true.
PlacementPrediction MostLikely(PlacementPrediction prediction);

}  // namespace tandem
