#include "server/assembly/loaded_model.h"

#include <filesystem>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"
#include "tests/unit/checkpoint/checkpoint_files.h"

namespace tandem::loaded_model_test {
namespace {

// `--kv-dtype auto` keeps KV in the type of the model's config, which follows the weights where
// config.json does not say what they are.
TEST(DescribeModelTest, AConfigWithoutTorchDtypeFollowsTheWeights) {
  TempDirectory directory;
  auto config =
      nlohmann::json::parse(ReadFile(std::filesystem::path(SampleModel()) / "config.json"));
  config.erase("torch_dtype");
  config.erase("dtype");
  directory.Write("config.json", config.dump());
  directory.Write(
      "model.safetensors",
      SafetensorsFile(R"({"a": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}})", 24));
  WorkerOptions options;
  options.model_dir = directory.path();
  const auto described = DescribeModel(options);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->model->config.dtype, DType::kF32);
}

}  // namespace
}  // namespace tandem::loaded_model_test
