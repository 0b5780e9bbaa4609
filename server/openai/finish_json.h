#pragma once

#include "server/openai/json_body.h"
#include "server/openai/piece.h"

namespace tandem::openai {

// Adds "finish_reason" and "stop_reason", which are null unless the piece ends the choice.
void AddFinish(const Piece& piece, Json& choice);

// Where a choice was computed, and where its time was spent.
Json TimingJson(const v1::ChoiceFinish& finish);

// "unified" or "disaggregated".
const char* RouteName(v1::Route route);

}  // namespace tandem::openai
