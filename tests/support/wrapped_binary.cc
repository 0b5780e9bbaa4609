#include "tests/support/wrapped_binary.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/support/tree.h"

namespace tandem {
namespace {

// Scripts that are removed when the test program ends.
struct Scripts {
  ~Scripts() {
    for (const std::string& path : paths) unlink(path.c_str());
  }
  std::vector<std::string> paths;
};

}  // namespace

std::string WrappedBinary(const std::string& before, const std::string& after) {
  static Scripts scripts;
  const std::string path =
      fmt::format("{}/tandem_wrapped_{}_{}.sh", testing::TempDir(), getpid(), scripts.paths.size());
  scripts.paths.push_back(path);
  std::ofstream(path) << "#!/bin/sh\n"
                      << before << "\nexec " << DaemonBinary() << " \"$@\" " << after << "\n";
  chmod(path.c_str(), 0755);
  return path;
}

}  // namespace tandem
