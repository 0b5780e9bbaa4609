#include "server/worker_messages.h"

namespace tandem {
namespace {

int64_t Micros(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

SamplingParams ToSamplingParams(const v1::SamplingParams& params) {
  return {.temperature = params.temperature(),
          .top_k = params.top_k(),
          .top_p = params.top_p(),
          .min_p = params.min_p(),
          .repetition_penalty = params.repetition_penalty(),
          .presence_penalty = params.presence_penalty(),
          .frequency_penalty = params.frequency_penalty(),
          .seed = params.seed(),
          .num_logprobs = params.has_logprobs() ? params.logprobs() : -1};
}

v1::StageTimes ToStageTimes(const StageTimes& stages) {
  v1::StageTimes times;
  times.set_queue_us(Micros(stages.queue));
  times.set_prefill_us(Micros(stages.prefill));
  times.set_transfer_us(Micros(stages.transfer));
  times.set_first_token_us(Micros(stages.first_token));
  times.set_wait_kv_us(Micros(stages.wait_kv));
  return times;
}

v1::TokenLogprob ToLogprob(int32_t token_id, float logprob) {
  v1::TokenLogprob entry;
  entry.set_token_id(token_id);
  entry.set_logprob(logprob);
  return entry;
}

v1::WorkerFinish::Reason ToReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::WorkerFinish::REASON_UNSPECIFIED;
    case FinishReason::kStop:
      return v1::WorkerFinish::REASON_STOP;
    case FinishReason::kLength:
      return v1::WorkerFinish::REASON_LENGTH;
    case FinishReason::kHandedOff:
      return v1::WorkerFinish::REASON_HANDED_OFF;
  }
  return v1::WorkerFinish::REASON_UNSPECIFIED;
}

}  // namespace

EngineRequest ToEngineRequest(const v1::SequenceRequest& sequence, TimePoint deadline) {
  return {.id = RequestId(sequence.request_id()),
          .prompt = {sequence.prompt().begin(), sequence.prompt().end()},
          .sampling = ToSamplingParams(sequence.sampling()),
          .max_tokens = sequence.max_tokens(),
          .stop_token_ids = {sequence.stop_token_ids().begin(), sequence.stop_token_ids().end()},
          .priority = sequence.priority(),
          .deadline = deadline};
}

HandoffTarget ToHandoffTarget(const v1::KvTarget& target) {
  return {.data_address = target.data_address(),
          .reservation = ReservationId(target.reservation_id()),
          .epoch = target.epoch()};
}

v1::WorkerEvent ToTokensEvent(std::span<const SampledToken> tokens, const StageTimes& stages,
                              LogprobsWanted logprobs) {
  v1::WorkerEvent event;
  v1::WorkerTokens& out = *event.mutable_tokens();
  for (const SampledToken& token : tokens) {
    out.add_token_ids(token.token_id);
    if (logprobs == LogprobsWanted::kNo) continue;
    v1::TokenLogprobs& entry = *out.add_logprobs();
    *entry.mutable_sampled() = ToLogprob(token.token_id, token.logprob);
    for (const TokenLogprob& top : token.top)
      *entry.add_top() = ToLogprob(top.token_id, top.logprob);
  }
  *out.mutable_stages() = ToStageTimes(stages);
  return event;
}

v1::WorkerEvent ToFinishEvent(const FinishInfo& info) {
  v1::WorkerEvent event;
  v1::WorkerFinish& finish = *event.mutable_finish();
  finish.set_reason(ToReason(info.reason));
  *finish.mutable_stages() = ToStageTimes(info.stages);
  finish.mutable_kv()->set_raw_bytes(info.kv.raw_bytes);
  finish.mutable_kv()->set_wire_bytes(info.kv.wire_bytes);
  finish.mutable_kv()->set_duration_us(Micros(info.kv.duration));
  finish.mutable_kv()->set_exposed_us(Micros(info.kv.exposed));
  return event;
}

v1::WorkerLoad ToLoad(const EngineStats& stats) {
  v1::WorkerLoad load;
  load.set_running(stats.scheduler.running + stats.scheduler.parked);
  load.set_waiting(stats.scheduler.waiting + stats.scheduler.prefilling);
  load.set_total_blocks(stats.total_blocks);
  load.set_free_blocks(stats.free_blocks);
  load.set_requests_finished(stats.requests_finished);
  load.set_prompt_tokens(stats.prompt_tokens);
  load.set_output_tokens(stats.output_tokens);
  load.set_kv_bytes_sent(stats.kv_bytes_sent);
  load.set_kv_bytes_received(stats.kv_bytes_received);
  load.set_waiting_prompt_tokens(stats.scheduler.waiting_prompt_tokens);
  return load;
}

v1::WorkerRole ToProto(Role role) {
  switch (role) {
    case Role::kUnified:
      return v1::WORKER_ROLE_UNIFIED;
    case Role::kPrefill:
      return v1::WORKER_ROLE_PREFILL;
    case Role::kDecode:
      return v1::WORKER_ROLE_DECODE;
  }
  return v1::WORKER_ROLE_UNSPECIFIED;
}

}  // namespace tandem
