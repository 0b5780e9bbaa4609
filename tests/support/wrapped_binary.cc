#include "tests/support/wrapped_binary.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "fmt/format.h"
#include "gtest/gtest.h"

namespace tandem {

std::string WrappedBinary(const std::string& before, const std::string& after) {
  static int count = 0;
  const std::string path =
      fmt::format("{}/tandem_wrapped_{}_{}.sh", testing::TempDir(), getpid(), ++count);
  std::ofstream(path) << "#!/bin/sh\n"
                      << before << "\nexec " << TANDEM_BINARY << " \"$@\" " << after << "\n";
  chmod(path.c_str(), 0755);
  return path;
}

}  // namespace tandem
