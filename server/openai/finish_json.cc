#include "server/openai/finish_json.h"

namespace tandem::openai {
namespace {

const char* ReasonName(const Piece& piece) {
  if (piece.finish->reason() == v1::FINISH_REASON_LENGTH) return "length";
  return piece.has_calls ? "tool_calls" : "stop";
}

}  // namespace

const char* RouteName(v1::Route route) {
  return route == v1::ROUTE_DISAGGREGATED ? "disaggregated" : "unified";
}

void AddFinish(const Piece& piece, Json& choice) {
  choice["finish_reason"] = nullptr;
  if (!piece.finish) return;
  choice["finish_reason"] = ReasonName(piece);
  choice["stop_reason"] = piece.stop_reason;
}

Json TimingJson(const v1::ChoiceFinish& finish) {
  const v1::Stages& stages = finish.stages();
  Json json;
  json["index"] = finish.index();
  json["route"] = RouteName(finish.route());
  json["prefill_worker"] = finish.prefill_worker();
  json["decode_worker"] = finish.decode_worker();
  json["time_to_first_token_ms"] = stages.ttft_ms();
  json["earlier_attempts_ms"] = stages.earlier_attempts_ms();
  json["queue_time_ms"] = stages.queue_ms();
  json["prefill_ms"] = stages.prefill_ms();
  json["reserve_ms"] = stages.reserve_ms();
  json["transfer_ms"] = stages.transfer_ms();
  json["first_token_ms"] = stages.first_token_ms();
  json["admission_ms"] = stages.admission_ms();
  json["residual_ms"] = stages.residual_ms();
  json["mean_itl_ms"] = finish.tpot_ms();
  json["e2e_ms"] = finish.e2e_ms();
  return json;
}

}  // namespace tandem::openai
