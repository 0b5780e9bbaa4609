#pragma once

namespace tandem::openai {

// How the client wants its answer. What is generated is in the GenerateRequest.
struct AnswerOptions {
  bool stream = false;
  bool include_usage = false;     // of a stream: usage in an event of its own, the last one
  bool continuous_usage = false;  // of a stream: usage so far in every event
  bool echo = false;              // the text begins with the prompt
  bool logprobs = false;
  bool prompt_logprobs = false;
  bool tokens_as_ids = false;          // tokens are written as "token_id:123"
  bool return_token_ids = false;       // the answer has the token ids of prompt and output
  bool max_completion_tokens = false;  // of chats: the limit came under this name, not max_tokens
  bool include_reasoning = true;       // in chats: the answer has the model's reasoning
  bool parallel_tool_calls = true;     // false: only the first tool call of a choice is sent
  bool return_timing = false;          // where the request went and where its time was spent
};

}  // namespace tandem::openai
