#include "tests/support/shallow_model.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/json.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"

namespace tandem {
namespace {

const std::string kDeepModel = SampleModel();
constexpr int kKeptLayers = 2;

bool IsOfLaterLayer(const std::string& tensor) {
  constexpr std::string_view kPrefix = "model.layers.";
  return tensor.starts_with(kPrefix) &&
         std::strtol(tensor.c_str() + kPrefix.size(), nullptr, 10) >= kKeptLayers;
}

// A file of safetensors is the length of its header, the header, and the bytes of all tensors.
std::string WithoutLaterLayers(const std::string& file) {
  uint64_t header_bytes = 0;
  file.copy(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  const size_t data = sizeof(header_bytes) + header_bytes;
  nlohmann::json kept;
  std::string kept_data;
  const auto header = ParseJson(file.substr(sizeof(header_bytes), header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__" || IsOfLaterLayer(name)) continue;
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    kept[name] = entry;
    kept[name]["data_offsets"] = {kept_data.size(), kept_data.size() + end - begin};
    kept_data.append(file, data + begin, end - begin);
  }
  std::string kept_header = kept.dump();
  kept_header.resize((kept_header.size() + 7) / 8 * 8, ' ');
  header_bytes = kept_header.size();
  const std::string length(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  return length + kept_header + kept_data;
}

class ShallowCopy {
 public:
  ShallowCopy() : directory_(fmt::format("{}shallow-sample-{}", testing::TempDir(), getpid())) {
    std::filesystem::create_directories(directory_);
    auto config = ParseJson(ReadFile(std::string(kDeepModel) + "/config.json"));
    config["num_hidden_layers"] = kKeptLayers;
    std::ofstream(directory_ + "/config.json") << config;
    std::ofstream(directory_ + "/model.safetensors", std::ios::binary)
        << WithoutLaterLayers(ReadFile(std::string(kDeepModel) + "/model.safetensors"));
  }
  ShallowCopy(const ShallowCopy&) = delete;
  ~ShallowCopy() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  const std::string& directory() const { return directory_; }

 private:
  const std::string directory_;
};

}  // namespace

const std::string& ShallowSample() {
  static const ShallowCopy copy;
  return copy.directory();
}

}  // namespace tandem
