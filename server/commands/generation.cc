#include "server/commands/generation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json LogprobsJson(const v1::TokenLogprobs& logprobs) {
  Json top = Json::array();
  for (const v1::TokenLogprob& entry : logprobs.top()) {
    top.push_back({{"token_id", entry.token_id()}, {"logprob", entry.logprob()}});
  }
  return {{"token_id", logprobs.sampled().token_id()},
          {"logprob", logprobs.sampled().logprob()},
          {"top", std::move(top)}};
}

Json LogprobsJson(const std::vector<v1::TokenLogprobs>& tokens) {
  Json logprobs = Json::array();
  for (const v1::TokenLogprobs& entry : tokens) logprobs.push_back(LogprobsJson(entry));
  return logprobs;
}

Json StagesJson(const v1::Stages& stages) {
  return {
      {"ttft_ms", stages.ttft_ms()},         {"earlier_attempts_ms", stages.earlier_attempts_ms()},
      {"queue_ms", stages.queue_ms()},       {"prefill_ms", stages.prefill_ms()},
      {"reserve_ms", stages.reserve_ms()},   {"admission_ms", stages.admission_ms()},
      {"transfer_ms", stages.transfer_ms()}, {"first_token_ms", stages.first_token_ms()},
      {"residual_ms", stages.residual_ms()}};
}

Json PredictionJson(const v1::Prediction& prediction) {
  return {{"ttft_ms", prediction.ttft_ms()},
          {"tpot_ms", prediction.tpot_ms()},
          {"e2e_ms", prediction.e2e_ms()},
          {"queue_ms", prediction.queue_ms()},
          {"prefill_ms", prediction.prefill_ms()},
          {"transfer_ms", prediction.transfer_ms()},
          {"admission_ms", prediction.admission_ms()},
          {"decode_ms", prediction.decode_ms()},
          {"messages_ms", prediction.messages_ms()},
          {"decided_ms", prediction.decided_ms()},
          {"output_tokens", prediction.output_tokens()}};
}

Json ChoiceJson(const Generation::Choice& choice) {
  const v1::ChoiceFinish& finish = choice.finish;
  const v1::KvBytes& kv = finish.kv_bytes();
  Json json = {{"text", choice.text},
               {"token_ids", choice.token_ids},
               {"finish_reason", Name(finish.reason())},
               {"route", Name(finish.route())},
               {"stages", StagesJson(finish.stages())},
               {"tpot_ms", finish.tpot_ms()},
               {"e2e_ms", finish.e2e_ms()},
               {"kv_bytes",
                {{"raw", kv.raw()},
                 {"wire", kv.wire()},
                 {"transfer_ms", kv.transfer_ms()},
                 {"exposed_ms", kv.exposed_ms()},
                 {"codec", kv.codec()},
                 {"expected_ms", kv.expected_ms()}}},
               {"prefill_worker", finish.prefill_worker()},
               {"decode_worker", finish.decode_worker()}};
  if (finish.has_predicted()) json["predicted"] = PredictionJson(finish.predicted());
  if (!finish.stop().empty()) json["stop"] = finish.stop();
  if (finish.cumulative_logprob() != 0) json["cumulative_logprob"] = finish.cumulative_logprob();
  if (finish.score() != 0) json["score"] = finish.score();
  if (!choice.logprobs.empty()) json["logprobs"] = LogprobsJson(choice.logprobs);
  return json;
}

}  // namespace

void Generation::Add(const v1::GenerateResponse& event) {
  if (event.has_summary()) {
    summary = event.summary();
    return;
  }
  if (event.has_prompt_logprobs()) {
    const auto& tokens = event.prompt_logprobs().tokens();
    prompt_logprobs.insert(prompt_logprobs.end(), tokens.begin(), tokens.end());
    return;
  }
  const int32_t index = event.has_chunk() ? event.chunk().index() : event.finish().index();
  if (index < 0) return;
  if (choices.size() <= static_cast<size_t>(index)) choices.resize(index + 1);
  Choice& choice = choices[index];
  if (event.has_finish()) {
    choice.finish = event.finish();
    return;
  }
  const v1::Chunk& chunk = event.chunk();
  choice.text += chunk.text();
  choice.token_ids.insert(choice.token_ids.end(), chunk.token_ids().begin(),
                          chunk.token_ids().end());
  choice.logprobs.insert(choice.logprobs.end(), chunk.logprobs().begin(), chunk.logprobs().end());
}

std::string_view Name(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    default:  // protobuf enums are open
      return "unspecified";
  }
}

std::string_view Name(v1::CostModel::Source source) {
  switch (source) {
    case v1::CostModel::SOURCE_FILE:
      return "file";
    case v1::CostModel::SOURCE_MEASURED:
      return "measured";
    case v1::CostModel::SOURCE_LEARNED:
      return "learned";
    default:
      return "none";
  }
}

std::string_view Name(v1::Route route) {
  switch (route) {
    case v1::ROUTE_AUTO:
      return "auto";
    case v1::ROUTE_UNIFIED:
      return "unified";
    case v1::ROUTE_DISAGGREGATED:
      return "disaggregated";
    default:  // protobuf enums are open
      return "unknown";
  }
}

std::string ToJson(const Generation& generation) {
  Json json = generation.choices.empty() ? Json::object() : ChoiceJson(generation.choices[0]);
  if (!generation.prompt_logprobs.empty()) {
    json["prompt_logprobs"] = LogprobsJson(generation.prompt_logprobs);
  }
  const v1::Usage& usage = generation.summary.usage();
  json["usage"] = {{"prompt_tokens", usage.prompt_tokens()},
                   {"completion_tokens", usage.completion_tokens()},
                   {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()},
                   {"cached_tokens", usage.cached_tokens()},
                   {"evicted_tokens", usage.evicted_tokens()},
                   {"preemptions", usage.preemptions()},
                   {"resumes", usage.resumes()},
                   {"kv_hidden_bytes", usage.kv_hidden_bytes()}};
  json["seed"] = generation.summary.seed();
  json["model"] = generation.summary.model();
  json["simulated"] = generation.summary.simulated();
  json["request_id"] = generation.summary.request_id();
  if (generation.choices.size() > 1) {
    Json choices = Json::array();
    for (const Generation::Choice& choice : generation.choices) {
      choices.push_back(ChoiceJson(choice));
    }
    json["choices"] = std::move(choices);
  }
  return JsonText(json);
}

double StagesErrorMs(const v1::Stages& stages) {
  const double sum = stages.earlier_attempts_ms() + stages.queue_ms() + stages.prefill_ms() +
                     stages.reserve_ms() + stages.admission_ms() + stages.transfer_ms() +
                     stages.first_token_ms() + stages.residual_ms();
  return std::abs(sum - stages.ttft_ms());
}

namespace {

// What the router predicted, beside the same quantities as they came true; nothing where it did
// not.
std::string PredictionLines(const v1::ChoiceFinish& finish) {
  if (!finish.has_predicted()) return "";
  const v1::Prediction& p = finish.predicted();
  const v1::Stages& s = finish.stages();
  const double exposed = finish.kv_bytes().exposed_ms();
  const double further = finish.tpot_ms() * std::max(0, finish.completion_tokens() - 1);
  struct Row {
    std::string_view name;
    double predicted_ms;
    double actual_ms;
  };
  const Row rows[] = {
      {"messages", p.messages_ms(), s.residual_ms() + s.reserve_ms() - p.decided_ms()},
      {"admission", p.admission_ms(), s.admission_ms()},
      {"queue", p.queue_ms(), s.queue_ms()},
      {"prefill", p.prefill_ms(), s.prefill_ms() + s.transfer_ms() + s.first_token_ms()},
      {"TTFT", p.ttft_ms(), s.ttft_ms()},
      {"transfer", p.transfer_ms(), exposed},
      {"decode", p.decode_ms(), std::max(0.0, further - exposed)},
      {"TPOT", p.tpot_ms(), finish.tpot_ms()},
      {"end to end", p.e2e_ms(), finish.e2e_ms()}};
  std::string lines =
      fmt::format("    predicted for {:.1f} output tokens, and actual:\n", p.output_tokens());
  for (const Row& row : rows) {
    lines += fmt::format("    {:<12}{:>10.3f} ms {:>10.3f} ms\n", row.name, row.predicted_ms,
                         row.actual_ms);
  }
  return lines;
}

}  // namespace

std::string StageTable(const v1::ChoiceFinish& finish) {
  const v1::Stages& s = finish.stages();
  std::string table = fmt::format("  route {} ({} -> {}), {} tokens, {}\n", Name(finish.route()),
                                  finish.prefill_worker(), finish.decode_worker(),
                                  finish.completion_tokens(), Name(finish.reason()));
  const std::pair<std::string_view, double> stages[] = {{"earlier tries", s.earlier_attempts_ms()},
                                                        {"queue", s.queue_ms()},
                                                        {"prefill", s.prefill_ms()},
                                                        {"reserve", s.reserve_ms()},
                                                        {"admission", s.admission_ms()},
                                                        {"transfer", s.transfer_ms()},
                                                        {"first token", s.first_token_ms()},
                                                        {"residual", s.residual_ms()}};
  double sum = 0;
  for (const auto& [name, ms] : stages) {
    sum += ms;
    table += fmt::format("    {:<14}{:>10.3f} ms\n", name, ms);
  }
  table += fmt::format("    {:<14}{:>10.3f} ms  (TTFT as measured: {:.3f} ms)\n", "= TTFT", sum,
                       s.ttft_ms());
  table += fmt::format("    {:<14}{:>10.3f} ms/token, {:.1f} ms end to end\n", "TPOT",
                       finish.tpot_ms(), finish.e2e_ms());
  const v1::KvBytes& kv = finish.kv_bytes();
  table += fmt::format("    {:<12}{} bytes raw, {} on the wire", "KV", kv.raw(), kv.wire());
  if (kv.raw() > 0) {
    table += fmt::format(" ({}), moved in {:.3f} ms of which {:.3f} ms after the first token",
                         kv.codec(), kv.transfer_ms(), kv.exposed_ms());
  }
  return table + "\n" + PredictionLines(finish);
}

}  // namespace tandem
