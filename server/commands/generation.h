#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// The result of one request, put together from the events of its stream.
struct Generation {
  struct Choice {
    std::string text;
    std::vector<int32_t> token_ids;
    std::vector<v1::TokenLogprobs> logprobs;
    v1::ChoiceFinish finish;
  };
  std::vector<Choice> choices;
  std::vector<v1::TokenLogprobs> prompt_logprobs;  // from the second token on
  v1::Summary summary;

  void Add(const v1::GenerateResponse& event);
};

// The names that the command line prints: "stop", "length"; "unified", "disaggregated", "auto";
// "file", "measured", "learned", "none".
std::string_view Name(v1::FinishReason reason);
std::string_view Name(v1::Route route);
std::string_view Name(v1::CostModel::Source source);

// The result as one JSON object: the fields of the first choice and, where there are several, the
// list "choices".
std::string ToJson(const Generation& generation);

// Where the time went, as lines for a person: the stages, their sum, TPOT, KV bytes.
std::string StageTable(const v1::ChoiceFinish& finish);

// How far the named stages and the residual are from TTFT. More than rounding is a bug.
double StagesErrorMs(const v1::Stages& stages);

}  // namespace tandem
