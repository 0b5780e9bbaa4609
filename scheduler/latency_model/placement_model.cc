#include "scheduler/latency_model/placement_model.h"

#include <algorithm>

#include "scheduler/latency_model/backlog.h"
#include "scheduler/latency_model/queue_roll.h"

namespace tandem {
namespace {

// The part of the prompt that is not in the prefix cache. At least one token is computed, because
// the first output token is sampled from it.
WaitingGroup PromptOf(const RequestShape& request, int32_t cached_tokens) {
  const int32_t prompt = std::max(request.prompt_tokens, 1);
  const int32_t cached = std::clamp(cached_tokens, 0, prompt - 1);
  return {.count = 1,
          .new_tokens = prompt - cached,
          .cached_tokens = cached,
          .output_tokens = std::max(request.output_tokens, 1.0),
          .sequences = std::max(request.sequences, 1)};
}

// The largest share of a worker's time that later prompts are assumed to take: without this bound,
// the time until the worker is idle would be infinite.
constexpr double kMostPromptShare = 0.9;
// How far into the future arrivals are assumed to continue at the present rate.
constexpr double kForesightMs = 10'000;

// How much the prompt of the subject of `roll` delays the prompts that arrive until the worker is
// idle, summed over them. Called after the subject's prompt was computed.
ModelTime LaterPrompts(const WorkerState& worker, const QueueRoll& roll) {
  const ArrivalRates& arrivals = worker.arrivals;
  const PrefillCost& alpha = worker.steps->coefficients().alpha;
  const double share = 1e-3 * (alpha.token_ms * arrivals.new_tokens_per_second +
                               alpha.pair_ms * arrivals.new_pairs_per_second);
  const double busy_ms =
      std::min(roll.now_ms() / (1 - std::min(share, kMostPromptShare)), kForesightMs);
  return ModelTime(roll.added_prefill_ms() * arrivals.sequences_per_second * 1e-3 * busy_ms);
}

// How much the prompt of the subject of `roll` delays the prompts that arrive at the usual rate
// until the worker's backlog is gone, summed over them.
ModelTime BacklogPrompts(const WorkerState& worker, const QueueRoll& roll) {
  const double delayed =
      ArrivalsWithin(worker.usual, ModelTime(roll.now_ms()), UtilizationOf(worker));
  return ModelTime(roll.added_prefill_ms() * delayed);
}

// How much the transfer of this request's KV delays later transfers, summed over the requests that
// have them. `alone`: the part of the transfer that the prefill does not hide on a link that
// carries nothing else; `ahead`: for how long the link is busy with earlier KV.
ModelTime BacklogTransfers(const RequestShape& request, const ArrivalRates& arrivals,
                           ModelTime alone, ModelTime ahead) {
  // Other requests are assumed to have as much KV per token to move as this one.
  const double share = arrivals.prompt_tokens / std::max(1, request.prompt_tokens);
  const double utilization = arrivals.sequences_per_second * 1e-3 * alone.count() * share;
  return alone * ArrivalsWithin(arrivals, ahead, utilization);
}

double FurtherTokens(const RequestShape& request) {
  return std::max(0.0, request.output_tokens - 1.0);
}

DecodeTime DecodeAll(QueueRoll& roll, const RequestShape& request) {
  return roll.Decode({.context_tokens = request.stored_tokens() + 1.0,
                      .steps = FurtherTokens(request),
                      .sequences = std::max(request.sequences, 1)});
}

void AddUp(const RequestShape& request, PlacementPrediction& prediction) {
  const PredictedStages& stages = prediction.stages;
  prediction.ttft = stages.messages + stages.admission + stages.queue + stages.prefill;
  prediction.e2e = prediction.ttft + stages.transfer + stages.decode;
  const double further = FurtherTokens(request);
  if (further > 0) prediction.tpot = (stages.transfer + stages.decode) / further;
}

}  // namespace

std::optional<PlacementPrediction> PredictUnified(const WorkerState& worker,
                                                  const RequestShape& request,
                                                  int32_t cached_tokens) {
  QueueRoll roll(worker);
  if (!roll.Serve(PromptOf(request, cached_tokens))) return std::nullopt;
  PlacementPrediction prediction;
  prediction.stages.messages = ModelTime(worker.messages_ms);
  prediction.stages.queue = ModelTime(roll.began_ms());
  prediction.stages.prefill = ModelTime(roll.now_ms() - roll.began_ms());
  prediction.later_prompts = LaterPrompts(worker, roll);
  prediction.backlog_prompts = BacklogPrompts(worker, roll);
  const DecodeTime decode = DecodeAll(roll, request);
  prediction.stages.decode = ModelTime(decode.ms);
  prediction.unlikely = ModelTime(decode.ms - decode.likely_ms);
  prediction.externality = ModelTime(roll.externality_ms());
  prediction.others_output_tokens = worker.arrivals.output_tokens;
  AddUp(request, prediction);
  return prediction;
}

std::optional<PrefillForecast> ForecastPrefill(const WorkerState& worker,
                                               const RequestShape& request, int32_t cached_tokens) {
  QueueRoll roll(worker);
  WaitingGroup prompt = PromptOf(request, cached_tokens);
  prompt.output_tokens = 0;
  if (!roll.Serve(prompt)) return std::nullopt;
  return PrefillForecast{.queue = ModelTime(roll.began_ms()),
                         .prefill = ModelTime(roll.now_ms() - roll.began_ms()),
                         .externality = ModelTime(roll.externality_ms()),
                         .later_prompts = LaterPrompts(worker, roll),
                         .messages = ModelTime(worker.messages_ms),
                         .backlog_prompts = BacklogPrompts(worker, roll),
                         .chunks = static_cast<int32_t>(std::max(1.0, roll.chunks())),
                         .usual = worker.usual};
}

std::optional<DecodeForecast> ForecastDecode(const WorkerState& worker, const RequestShape& request,
                                             int32_t cached_tokens, ModelTime kv_arrives) {
  QueueRoll roll(worker);
  WaitingGroup parked = PromptOf(request, 0);
  parked.cached_tokens = std::max(request.stored_tokens(), 1);
  parked.new_tokens = 0;
  if (!roll.Serve(parked)) return std::nullopt;
  DecodeForecast forecast;
  // The KV that stays of an evicted prompt is sent whole, because the prefix cache of the decode
  // worker does not hold it.
  const int32_t cached = request.evicted_tokens > 0 ? 0 : cached_tokens;
  forecast.cached_tokens = std::clamp(cached, 0, request.prompt_tokens);
  forecast.admission = ModelTime(roll.now_ms());
  const double arrival = roll.now_ms() + std::max(0.0, kv_arrives.count());
  roll.RunUntil(arrival);
  forecast.wait = ModelTime(roll.now_ms() - arrival);
  const DecodeTime decode = DecodeAll(roll, request);
  forecast.decode = ModelTime(decode.ms);
  forecast.unlikely = ModelTime(decode.ms - decode.likely_ms);
  forecast.externality = ModelTime(roll.externality_ms());
  forecast.others_output_tokens = worker.arrivals.output_tokens;
  return forecast;
}

PlacementPrediction JoinDisaggregated(const RequestShape& request, const KvTransferShape& kv,
                                      const PrefillForecast& prefill, const DecodeForecast& decode,
                                      const LinkModel& link, int32_t streams, ModelTime ahead) {
  const int32_t moved = std::max(0, request.stored_tokens() - decode.cached_tokens);
  const int32_t blocks = (moved + kv.block_tokens - 1) / kv.block_tokens;
  const ModelTime transfer =
      link.Transfer(moved * kv.bytes_per_token, int64_t{blocks} * kv.layers, streams);
  PlacementPrediction prediction;
  PredictedStages& stages = prediction.stages;
  stages.admission = decode.admission;
  // While the request waits for the decode worker, the queue of the prefill worker gets shorter.
  stages.queue = std::max(ModelTime::zero(), prefill.queue - decode.admission);
  stages.prefill = prefill.prefill;
  stages.messages = prefill.messages;
  if (FurtherTokens(request) > 0) {
    const int32_t units = request.evicted_tokens > 0 ? 1 : prefill.chunks * kv.layers;
    const ModelTime alone = ExposedTransfer(transfer, prefill.prefill, units);
    stages.transfer = moved > 0 ? ExposedTransfer(transfer + ahead, prefill.prefill, units) : alone;
    prediction.backlog_transfers =
        BacklogTransfers(request, prefill.usual, alone, stages.transfer - alone);
    prediction.hand_off = kv.hand_off;
    stages.transfer += kv.hand_off;
    stages.decode = decode.wait + decode.decode;
    prediction.unlikely = decode.unlikely;
  }
  prediction.externality = prefill.externality + decode.externality;
  prediction.others_output_tokens = decode.others_output_tokens;
  prediction.later_prompts = prefill.later_prompts;
  prediction.backlog_prompts = prefill.backlog_prompts;
  AddUp(request, prediction);
  return prediction;
}

PlacementPrediction MostLikely(PlacementPrediction prediction) {
  PredictedStages& stages = prediction.stages;
  const ModelTime output = stages.transfer + stages.decode;
  if (output > ModelTime::zero()) prediction.tpot *= (output - prediction.unlikely) / output;
  stages.decode -= prediction.unlikely;
  prediction.e2e -= prediction.unlikely;
  prediction.unlikely = ModelTime::zero();
  return prediction;
}

}  // namespace tandem
