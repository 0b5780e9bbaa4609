#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/answer/answer_reader.h"
#include "server/openai/json_body.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::openai {

// What is known of a prompt before its choices come.
struct PromptInfo {
  std::string text;                         // as the client wrote it, or decoded from its tokens
  std::vector<int32_t> token_ids;           // empty where nothing needs them
  std::vector<v1::TokenLogprobs> logprobs;  // of the tokens from the second one on
};

// A part of a choice that goes to the client in one event. In an answer that is sent whole, one
// piece is all of the choice.
struct Piece {
  int32_t index = 0;  // of the choice in the answer
  bool first = false;
  const PromptInfo* prompt = nullptr;
  std::string text;
  // The text divided into content, reasoning and tool calls, where it is searched for them. An
  // event may come in a later piece than its text.
  std::optional<std::vector<AnswerEvent>> events;
  std::vector<int32_t> token_ids;
  std::vector<v1::TokenLogprobs> logprobs;
  // With logprobs: where the text of each token begins in the choice's text, in characters.
  std::vector<size_t> text_offsets;
  std::optional<v1::ChoiceFinish> finish;
  bool has_calls = false;  // valid with `finish`: whether the choice has tool calls
  Json stop_reason;        // the stop string or stop token that ended it, or null
};

}  // namespace tandem::openai
