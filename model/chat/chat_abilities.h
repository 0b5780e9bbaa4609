#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "model/chat/chat_messages.h"

namespace tandem {

// Finds out which forms of messages a template takes by giving it small conversations. `render`
// renders messages and tools as they are.
using ChatProbe =
    std::function<absl::StatusOr<std::string>(const ChatJson& messages, const ChatJson& tools)>;
ChatAbilities ProbeTemplate(const ChatProbe& render);

}  // namespace tandem
