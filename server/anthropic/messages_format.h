#pragma once

#include <cstdint>
#include <memory>

#include "server/openai/answer.h"
#include "server/openai/turn.h"

namespace tandem::anthropic {

extern const openai::AnswerStyle kMessagesStyle;

// How POST /v1/messages writes an answer.
std::unique_ptr<openai::TurnFormat> NewMessagesFormat(openai::AnswerHead head,
                                                      int64_t prompt_tokens, bool return_timing);

}  // namespace tandem::anthropic
