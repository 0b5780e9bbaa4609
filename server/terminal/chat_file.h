#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/terminal/conversation.h"

namespace tandem::terminal {

// Expands "~/x" as a shell does: to a path below $HOME.
std::string ExpandHome(const std::string& path);

// Writes the chat to a file that its owner alone can read and write, all or nothing. A file of that
// name is replaced only where it holds a chat, too: FAILED_PRECONDITION otherwise.
absl::Status SaveChat(const Conversation& chat, const std::string& path);

// NOT_FOUND or INVALID_ARGUMENT names the file.
absl::StatusOr<Conversation> LoadChat(const std::string& path);

}  // namespace tandem::terminal
