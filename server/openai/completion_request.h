#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/openai/answer_options.h"
#include "server/openai/json_body.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::openai {

// The body of POST /v1/completions.
struct CompletionRequest {
  std::vector<v1::GenerateRequest> prompts;  // at least one; they differ in their prompt only
  AnswerOptions answer;
  bool add_special_tokens = true;  // whether texts get BOS and the like from the tokenizer

  // Whether the answer or the request needs the tokens of texts before the router tokenizes them.
  bool needs_token_ids() const {
    return answer.echo || answer.continuous_usage || answer.return_token_ids ||
           answer.prompt_logprobs || !add_special_tokens;
  }
};

// The most prompts in one request.
inline constexpr size_t kMaxPrompts = 512;

// INVALID_ARGUMENT and UNIMPLEMENTED name the field at fault (WithParam). Values that only the router
// can judge, such as those of sampling, are left to it.
//
// `complete` fills in and judges what all prompts share. It gets it without a prompt, and before it is
// copied for each of them: 512 copies of a field of megabytes would be gigabytes.
using CompleteFields = std::function<absl::Status(v1::GenerateRequest& fields)>;
absl::StatusOr<CompletionRequest> ParseCompletion(const Json& body,
                                                  const CompleteFields& complete = {});

}  // namespace tandem::openai
