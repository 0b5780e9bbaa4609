// The main of a program that has the tests of many files, of which each ctest runs those of its own:
//   engine_unit_tests --files=unit/engine/fork_test.cc,unit/engine/...
// Without --files the tests of all files run. Where --gtest_filter is given, it chooses the tests alone.

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

constexpr std::string_view kFlag = "--files=";

std::vector<std::string> Split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    parts.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

// A filter that takes the tests of the file, empty where it has none.
std::string FilterOf(const std::string& file) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (!std::string_view(test.file()).ends_with("/" + file)) continue;
      filter.append(suite.name()).append(".").append(test.name()).append(":");
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kFlag)) {
      std::fprintf(stderr, "%s: the only flags are those of gtest and %sa_test.cc,b_test.cc\n",
                   argv[i], std::string(kFlag).c_str());
      return 2;
    }
    if (GTEST_FLAG_GET(filter) != "*") continue;
    std::string filter;
    for (const std::string& file : Split(argument.substr(kFlag.size()))) {
      const std::string tests = FilterOf(file);
      if (tests.empty()) {
        std::fprintf(stderr, "%s: this program has no test of that file\n", file.c_str());
        return 2;
      }
      filter += tests;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
