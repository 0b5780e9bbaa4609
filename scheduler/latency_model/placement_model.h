#pragma once

#include <cstdint>
#include <optional>

#include "scheduler/latency_model/link_model.h"
#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// What must be known of a request to predict its placement.
struct RequestShape {
  int32_t prompt_tokens = 0;  // at least 1
  double output_tokens = 1;   // expected for each sequence, the first included; at least 1
  int32_t sequences = 1;      // sequences that decode beside each other after the prompt
  // Tokens of the prompt whose KV is evicted at its end: they are neither moved nor read by
  // decodes, and what stays is moved after the whole prompt was computed.
  int32_t evicted_tokens = 0;

  int32_t stored_tokens() const { return prompt_tokens - evicted_tokens; }
};

// How much KV of a request moves to a decode worker, and in what units.
struct KvTransferShape {
  int64_t bytes_per_token = 0;
  int32_t layers = 1;
  int32_t block_tokens = 16;
  // The time of a hand-off that the bytes of its KV do not explain, as far as the prefill does not
  // hide it.
  ModelTime hand_off{};
};

// The stages of a request and the time that is predicted for each. Messages, admission, queue and
// prefill add up to the time to first token, and together with transfer and decode to the end of
// the output.
struct PredictedStages {
  ModelTime messages{};   // between router and workers, until the first token is at the router
  ModelTime admission{};  // until the decode worker, which is asked first, has room
  ModelTime queue{};      // after admission, until the first chunk of the prompt runs
  ModelTime prefill{};    // from the first chunk of the prompt until the first token
  ModelTime transfer{};   // the part of the KV hand-off that the prefill does not hide
  ModelTime decode{};     // all further tokens and the wait for the step in progress; a mean
};

struct PlacementPrediction {
  PredictedStages stages;
  ModelTime hand_off{};  // part of stages.transfer that the bytes of the KV do not explain
  // The difference between the mean of stages.decode, and so of tpot and e2e, and its most likely
  // value (DecodeTime::likely_ms). Costs are computed from means.
  ModelTime unlikely{};
  ModelTime ttft{};
  ModelTime tpot{};  // mean time per token after the first; 0 when there is only one
  ModelTime e2e{};
  // What the request costs the sequences that decode beside it: the time added to each of them,
  // summed over all these sequences.
  ModelTime externality{};
  // The mean output of the sequences that decode beside the request; 0 where nothing is known of
  // them.
  double others_output_tokens = 0;
  // How much this prompt delays the first tokens of later requests that find the worker busy with
  // it, summed over those requests.
  ModelTime later_prompts{};
  // How much this prompt delays all prompts that arrive at the usual rate until the worker's
  // backlog is gone, summed over those prompts, as far as that can be foreseen.
  ModelTime backlog_prompts{};
  // How much this request's KV delays the KV of the requests that arrive until the link has sent
  // what goes before it, summed over those requests.
  ModelTime backlog_transfers{};
};

// Predicts prefill and decode on one worker whose prefix cache holds `cached_tokens` of the prompt.
// Nothing when the request does not fit into the worker even alone.
std::optional<PlacementPrediction> PredictUnified(const WorkerState& worker,
                                                  const RequestShape& request,
                                                  int32_t cached_tokens);

// The prefill half of a disaggregated placement. The two halves are predicted apart, so that with P
// prefill and D decode workers P + D forecasts and P x D joins, which are cheap, predict all pairs.
struct PrefillForecast {
  ModelTime queue{};
  ModelTime prefill{};
  ModelTime externality{};
  ModelTime later_prompts{};
  ModelTime messages{};
  ModelTime backlog_prompts{};
  int32_t chunks = 1;    // number of steps that compute the prompt
  ArrivalRates usual{};  // arrivals at the worker, and so on its link
};
std::optional<PrefillForecast> ForecastPrefill(const WorkerState& worker,
                                               const RequestShape& request, int32_t cached_tokens);

struct DecodeForecast {
  ModelTime admission{};
  ModelTime wait{};  // from the arrival of the KV until the sequence's first step begins
  ModelTime decode{};
  ModelTime unlikely{};  // part of `decode` above its most likely value
  ModelTime externality{};
  double others_output_tokens = 0;
  int32_t cached_tokens = 0;  // in the decode worker's prefix cache: need not be moved
};
// Predicts the decode half of a disaggregated placement. `kv_arrives` is the time until the KV has
// arrived if the worker admits the request at once; an estimate is enough, such as that of the
// fastest prefill.
std::optional<DecodeForecast> ForecastDecode(const WorkerState& worker, const RequestShape& request,
                                             int32_t cached_tokens, ModelTime kv_arrives);

// Predicts a disaggregated placement from its two halves. `streams` is the number of streams on the
// link, this one included. `ahead`: for how long the link has KV of other requests to carry when
// this prefill begins.
PlacementPrediction JoinDisaggregated(const RequestShape& request, const KvTransferShape& kv,
                                      const PrefillForecast& prefill, const DecodeForecast& decode,
                                      const LinkModel& link, int32_t streams,
                                      ModelTime ahead = ModelTime::zero());

// The same placement with its most likely times in place of means: these are compared with the
// measured times.
PlacementPrediction MostLikely(PlacementPrediction prediction);

}  // namespace tandem
