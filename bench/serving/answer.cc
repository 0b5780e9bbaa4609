#include "bench/serving/answer.h"

#include <string>

namespace tandem::loadgen {
namespace {

std::string NameOf(v1::Route route) {
  if (route == v1::ROUTE_UNIFIED) return "unified";
  return route == v1::ROUTE_DISAGGREGATED ? "disaggregated" : "";
}

std::string NameOf(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_LENGTH) return "length";
  return reason == v1::FINISH_REASON_STOP ? "stop" : "";
}

ServerStages StagesOf(const v1::Stages& stages) {
  return {.ttft = stages.ttft_ms(),
          .earlier_attempts = stages.earlier_attempts_ms(),
          .queue = stages.queue_ms(),
          .prefill = stages.prefill_ms(),
          .reserve = stages.reserve_ms(),
          .admission = stages.admission_ms(),
          .transfer = stages.transfer_ms(),
          .first_token = stages.first_token_ms(),
          .residual = stages.residual_ms()};
}

// The decode was predicted for another number of tokens than came: it is proportional to those
// after the first.
PredictedLatency PredictedOf(const v1::ChoiceFinish& finish) {
  const v1::Prediction& predicted = finish.predicted();
  PredictedLatency latency;
  latency.ttft = predicted.ttft_ms();
  const double further = finish.completion_tokens() - 1;
  const double expected = predicted.output_tokens() - 1;
  if (further <= 0) {
    latency.e2e = predicted.ttft_ms();
  } else if (expected > 0) {
    const double rest = predicted.transfer_ms() + predicted.decode_ms() * further / expected;
    latency.tpot = rest / further;
    latency.e2e = predicted.ttft_ms() + rest;
  }
  return latency;
}

}  // namespace

void TakeFinish(const v1::ChoiceFinish& finish, CallEnd& end) {
  end.finish_reason = NameOf(finish.reason());
  end.route = NameOf(finish.route());
  if (finish.has_stages()) end.stages = StagesOf(finish.stages());
  if (finish.has_predicted()) end.predicted = PredictedOf(finish);
}

void TakeSummary(const v1::Summary& summary, CallEnd& end) {
  end.prompt_tokens = summary.usage().prompt_tokens();
  end.output_tokens = summary.usage().completion_tokens();
  end.cached_tokens = summary.usage().cached_tokens();
  end.simulated = summary.simulated();
}

}  // namespace tandem::loadgen
