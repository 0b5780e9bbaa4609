#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "gtest/gtest.h"

namespace tandem {

// A directory of its own, removed at the end of the test.
class TempDirectory {
 public:
  TempDirectory() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) /
            fmt::format("tandem_{}_{}_{}", test->test_suite_name(), test->name(), getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  std::string path() const { return path_.string(); }
  std::string Write(std::string_view name, std::string_view content) const {
    const std::string file = (path_ / name).string();
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

// The bytes of a safetensors file with this header and so many zero bytes of data.
inline std::string SafetensorsFile(std::string_view header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(uint64_t{header.size()} >> (8 * i));
  file += header;
  file.append(data_bytes, '\0');
  return file;
}

}  // namespace tandem
