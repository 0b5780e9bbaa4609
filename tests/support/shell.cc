#include "tests/support/shell.h"

#include <sys/wait.h>

#include <cstdio>

#include "tests/support/tree.h"

namespace tandem {

CommandResult RunInShell(const std::string& line) {
  CommandResult result;
  FILE* pipe = popen(line.c_str(), "r");
  char buffer[4096];
  size_t count;
  while ((count = fread(buffer, 1, sizeof(buffer), pipe)) > 0) result.output.append(buffer, count);
  const int how = pclose(pipe);
  result.exit_status = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
  return result;
}

CommandResult Shell(const std::string& arguments, const std::string& before) {
  return RunInShell(before + " " + DaemonBinary() + " " + arguments);
}

}  // namespace tandem
