#pragma once

#include <memory>

#include "server/openai/answer.h"
#include "server/openai/turn.h"

namespace tandem::openai {

extern const AnswerStyle kResponsesStyle;

// How POST /v1/responses writes an answer. `echo`: the fields of the request that it repeats.
std::unique_ptr<TurnFormat> NewResponsesFormat(AnswerHead head, Json echo, bool return_timing);

}  // namespace tandem::openai
