#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/openai/answer_options.h"
#include "server/openai/body_fields.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::openai {

// Reads the fields that completions and chat completions have in common, and refuses those that
// this server does not know how to honour although they would change the answer. Fields without a
// meaning here are ignored, because clients send many of them. docs/openai.md has the lists.
absl::Status ReadCommonFields(const BodyFields& body, v1::GenerateRequest& request,
                              AnswerOptions& answer);

// INVALID_ARGUMENT, with `field` at fault, unless there is one choice: every choice would have all
// log-probabilities of the prompt, which are gigabytes for 64 choices of a long prompt.
absl::Status CheckPromptLogprobs(const v1::GenerateRequest& request, std::string_view field);

// A field that is refused unless its value is neutral.
struct RefusedField {
  const char* name;
  const char* why;
};
// UNIMPLEMENTED for the first of `fields` that the body has.
absl::Status RefuseFields(const BodyFields& body, std::span<const RefusedField> fields);

// Whether a field of this value asks for nothing: null, false, 0, and empty texts, lists and
// objects.
bool IsNeutral(const Json& value);

}  // namespace tandem::openai
