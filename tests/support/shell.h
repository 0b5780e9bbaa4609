#pragma once

#include <string>

namespace tandem {

struct CommandResult {
  int exit_status = -1;  // -1: a signal ended it
  std::string output;    // stdout, or stderr as the caller redirects
};

// Runs a line of the shell.
CommandResult RunInShell(const std::string& line);
// Runs `tandem ARGUMENTS` by the shell. `before`: what the shell does first, as "ulimit -f 1;".
CommandResult Shell(const std::string& arguments, const std::string& before = "");

}  // namespace tandem
