#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer/weight_layout.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"
#include "tests/unit/checkpoint/checkpoint_files.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem {

// A checkpoint of tests/golden, read into memory, to be written elsewhere with a fault.
class WeightsTest : public testing::Test {
 protected:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };

  void Read(const std::string& name) {
    source_ = TreePath("tests/golden/checkpoints/") + name;
    const auto checkpoint = Checkpoint::Open(source_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    for (const std::string& tensor_name : (*checkpoint)->Names()) {
      const CheckpointTensor tensor = (*checkpoint)->Find(tensor_name).value();
      const std::map<DType, std::string> names = {{DType::kF32, "F32"},
                                                  {DType::kF16, "F16"},
                                                  {DType::kBF16, "BF16"},
                                                  {DType::kI8, "I8"},
                                                  {DType::kF8E4M3, "F8_E4M3"}};
      tensors_[tensor_name] = {
          names.at(tensor.dtype), tensor.shape,
          std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())};
    }
    config_ = ParseJson(ReadFile(source_ + "/config.json"));
  }

  // Writes what is now in tensors_ and config_. `padding`: spaces that shift the data.
  void Write(size_t padding = 0) {
    nlohmann::json header;
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8 + padding, ' ');
    directory_.Write("model.safetensors", SafetensorsFile(text, 0) + data);
    directory_.Write("config.json", config_.dump());
  }

  absl::Status Load(const LoadProgress& progress = nullptr) {
    const auto config = LoadModelConfig(directory_.path());
    EXPECT_TRUE(config.ok()) << config.status();
    auto checkpoint = Checkpoint::Open(directory_.path());
    if (!checkpoint.ok()) return checkpoint.status();
    const auto backend = OpenBackend("cpu", {.num_threads = 1});
    auto packing = OpenBackend("cpu", {.num_threads = 1});
    EXPECT_TRUE(backend.ok() && packing.ok());
    const auto weights = LoadResidentWeights(*config, *std::move(checkpoint), *backend->device,
                                             *std::move(packing), WeightsAs::kStored, progress);
    if (!weights.ok()) return weights.status();
    return (*weights)->Head().status();  // the last group
  }

  void ExpectRefused(absl::StatusCode code, std::string_view text) {
    Write();
    const absl::Status status = Load();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
  }

  static std::vector<float> Logits(const std::string& directory) {
    const auto model = ModelUnderTest::Load({.directory = directory});
    TestSequence sequence = model->NewSequence({1, 2, 3, 4, 5, 6, 7});
    return model->Prefill(sequence, 7);
  }

  std::string source_;
  std::map<std::string, Tensor> tensors_;
  nlohmann::json config_;
  TempDirectory directory_;
};

}  // namespace tandem
