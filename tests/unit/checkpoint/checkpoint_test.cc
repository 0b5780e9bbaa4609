#include "model/checkpoint/checkpoint.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/model_config.h"
#include "tests/unit/checkpoint/checkpoint_files.h"

namespace tandem::checkpoint_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  static std::string One(std::string_view tensor) {
    return SafetensorsFile("{\"" + std::string(tensor) +
                               R"(": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
                           4);
  }

  void Index(std::string_view weight_map) {
    directory_.Write(
        "model.safetensors.index.json",
        R"({"metadata": {"total_size": 8}, "weight_map": )" + std::string(weight_map) + "}");
  }

  void ExpectRefused(absl::StatusCode code, std::string_view text) {
    const absl::Status status = Checkpoint::Open(directory_.path()).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  TempDirectory directory_;
};

TEST_F(CheckpointTest, ReadsOneFile) {
  std::string file = One("a");
  file[file.size() - 1] = 7;
  directory_.Write("model.safetensors", file);
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT((*checkpoint)->Names(), ElementsAre("a"));
  EXPECT_EQ((*checkpoint)->total_bytes(), 4u);
  const auto tensor = (*checkpoint)->Find("a");
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->bytes[3], std::byte{7});
  EXPECT_EQ((*checkpoint)->Find("b").status().code(), absl::StatusCode::kNotFound);
}

// config.json need not say what the weights are: KV follows them then (--kv-dtype auto).
TEST_F(CheckpointTest, AConfigWithoutTorchDtypeFollowsTheWeights) {
  directory_.Write(
      "model.safetensors",
      SafetensorsFile(R"({"a": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]},)"
                      R"( "b": {"dtype": "BF16", "shape": [10], "data_offsets": [24, 44]}})",
                      44));
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->PrevalentDType(), DType::kF32);
  ModelConfig silent;
  AdoptDType(**checkpoint, silent);
  EXPECT_EQ(silent.dtype, DType::kF32);
  ModelConfig outspoken = {.dtype = DType::kF16, .names_dtype = true};
  AdoptDType(**checkpoint, outspoken);
  EXPECT_EQ(outspoken.dtype, DType::kF16);
}

TEST_F(CheckpointTest, ForgottenBytesCanBeReadAgain) {
  const size_t size = 1 << 16;
  std::string file = SafetensorsFile(
      R"({"a": {"dtype": "F32", "shape": [16384], "data_offsets": [0, 65536]}})", size);
  for (size_t i = 0; i < size; ++i) file[file.size() - size + i] = static_cast<char>(i % 251);
  directory_.Write("model.safetensors", file);
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto tensor = (*checkpoint)->Find("a");
  ASSERT_TRUE(tensor.ok());
  (*checkpoint)->Forget(*tensor);
  for (size_t i = 0; i < size; ++i) {
    ASSERT_EQ(std::to_integer<int>(tensor->bytes[i]), static_cast<int>(i % 251)) << i;
  }
}

TEST_F(CheckpointTest, AFileThatIsCutShortWhileItIsReadEndsTheProcessWithItsName) {
  const std::string path = directory_.Write(
      "model.safetensors",
      SafetensorsFile(R"({"a": {"dtype": "F32", "shape": [16384], "data_offsets": [0, 65536]}})",
                      1 << 16));
  const auto read_all = [&] {
    ExplainReadFaults();
    const auto checkpoint = Checkpoint::Open(directory_.path());
    const auto tensor = (*checkpoint)->Find("a");
    std::filesystem::resize_file(path, 4096);
    unsigned sum = 0;
    for (const std::byte byte : tensor->bytes) sum += std::to_integer<unsigned>(byte);
    _exit(static_cast<int>(100 + sum));
  };
  EXPECT_EXIT(read_all(), testing::ExitedWithCode(1),
              "error: DATA_LOSS: " + path + ": cannot be read any more");
}

TEST_F(CheckpointTest, ReadsShards) {
  directory_.Write("x-1.safetensors", One("a"));
  directory_.Write("x-2.safetensors", One("b"));
  Index(R"({"a": "x-1.safetensors", "b": "x-2.safetensors"})");
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT((*checkpoint)->Names(), ElementsAre("a", "b"));
  EXPECT_EQ((*checkpoint)->total_bytes(), 8u);
}

TEST_F(CheckpointTest, NamesWhatIsMissing) {
  ExpectRefused(absl::StatusCode::kNotFound, "neither model.safetensors nor");
  Index(R"({"a": "x-1.safetensors"})");
  ExpectRefused(absl::StatusCode::kNotFound, "x-1.safetensors: no such file");
}

TEST_F(CheckpointTest, NamesTheTruncatedFile) {
  const std::string file = One("a");
  directory_.Write("model.safetensors", file.substr(0, file.size() - 1));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "model.safetensors: tensor 'a': its data ends");
}

TEST_F(CheckpointTest, RefusesATensorThatIsNotInItsShard) {
  directory_.Write("x-1.safetensors", One("a"));
  directory_.Write("x-2.safetensors", One("b"));
  Index(R"({"a": "x-1.safetensors", "c": "x-2.safetensors"})");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "x-2.safetensors: tensor 'c' is not in it");
  Index(R"({"a": "x-2.safetensors", "b": "x-1.safetensors"})");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "is not in it");
}

TEST_F(CheckpointTest, RefusesATensorInTwoShards) {
  directory_.Write("x-1.safetensors", One("a"));
  directory_.Write("x-2.safetensors", One("a"));
  directory_.Write("x-3.safetensors", One("b"));
  Index(R"({"a": "x-2.safetensors", "b": "x-3.safetensors"})");
  ASSERT_TRUE(Checkpoint::Open(directory_.path()).ok());
  directory_.Write(
      "x-3.safetensors",
      SafetensorsFile(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},)"
                      R"("b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                      8));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "'a' is in another shard too");
}

TEST_F(CheckpointTest, RefusesShardNamesThatLeadElsewhere) {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a\\\\b.safetensors",
                           "a\\u0000.safetensors", ".safetensors", "x.bin", ""}) {
    Index(std::string(R"({"a": ")") + name + "\"}");
    ExpectRefused(absl::StatusCode::kInvalidArgument, "must be a plain file name");
  }
}

TEST_F(CheckpointTest, RefusesAnIndexOfAnotherForm) {
  for (const char* index : {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})",
                            R"({"weight_map": {"a": 1}})"}) {
    directory_.Write("model.safetensors.index.json", index);
    ExpectRefused(absl::StatusCode::kInvalidArgument, "model.safetensors.index.json");
  }
}

TEST_F(CheckpointTest, RefusesADirectoryInPlaceOfAFile) {
  std::filesystem::create_directory(directory_.path() + "/model.safetensors");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "not a regular file");
}

}  // namespace
}  // namespace tandem::checkpoint_test
