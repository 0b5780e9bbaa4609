#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/checkpoint/checkpoint_files.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// A checkpoint of tests/golden, read into memory, to be written elsewhere with a fault.
class WeightsTest : public testing::Test {
 protected:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };

  void Read(const std::string& name) {
    source_ = std::string(TANDEM_SOURCE_DIR) + "/tests/golden/checkpoints/" + name;
    const auto checkpoint = Checkpoint::Open(source_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    for (const std::string& tensor_name : (*checkpoint)->Names()) {
      const CheckpointTensor tensor = (*checkpoint)->Find(tensor_name).value();
      const std::map<DType, std::string> names = {
          {DType::kF32, "F32"}, {DType::kF16, "F16"}, {DType::kBF16, "BF16"}, {DType::kI8, "I8"}};
      tensors_[tensor_name] = {
          names.at(tensor.dtype), tensor.shape,
          std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())};
    }
    std::ifstream config(source_ + "/config.json");
    config_ = nlohmann::json::parse(config);
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
    auto backend = OpenBackend("cpu", {.num_threads = 1});
    EXPECT_TRUE(backend.ok()) << backend.status();
    const auto weights = LoadResidentWeights(*config, *std::move(checkpoint), *backend->device,
                                             std::move(backend->ops), WeightsAs::kStored, progress);
    if (!weights.ok()) return weights.status();
    return (*weights)->Head().status();  // the last group
  }

  void ExpectRefused(absl::StatusCode code, std::string_view text) {
    Write();
    const absl::Status status = Load();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
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

TEST_F(WeightsTest, ReportsProgressToTheEnd) {
  Read("llama2");
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += tensor.bytes.size();
  // Read by nobody, so no part of it.
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {8}, std::string(32, '\1')};
  Write();
  std::vector<uint64_t> loaded;
  ASSERT_TRUE(Load([&](uint64_t done, uint64_t total) {
                loaded.push_back(done);
                EXPECT_EQ(total, bytes);
              }).ok());
  EXPECT_TRUE(std::is_sorted(loaded.begin(), loaded.end(), std::less_equal<>()));
  EXPECT_EQ(loaded.back(), bytes);
}

TEST_F(WeightsTest, NamesAMissingTensor) {
  Read("llama2");
  tensors_.erase("model.layers.1.mlp.up_proj.weight");
  ExpectRefused(absl::StatusCode::kNotFound, "'model.layers.1.mlp.up_proj.weight'");
}

TEST_F(WeightsTest, AMissingHeadNamesTheOptionThatWouldTieIt) {
  Read("llama2");
  tensors_.erase("lm_head.weight");
  ExpectRefused(absl::StatusCode::kNotFound, "tie_word_embeddings");
}

TEST_F(WeightsTest, NamesTheShapeThatIsAndTheOneAskedFor) {
  Read("llama2");
  config_["intermediate_size"] = 112;
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "tensor model.layers.0.mlp.gate_proj.weight has the shape [96, 64], but "
                "config.json asks for [112, 64]");
}

TEST_F(WeightsTest, RefusesAVocabularyOfAnotherSize) {
  Read("llama2");
  config_["vocab_size"] = 300;
  ExpectRefused(absl::StatusCode::kInvalidArgument, "model.embed_tokens.weight has the shape");
}

TEST_F(WeightsTest, RefusesADtypeThatItDoesNotRead) {
  Read("llama2");
  Tensor& tensor = tensors_["model.layers.0.self_attn.q_proj.weight"];
  tensor.dtype = "I32";
  ExpectRefused(absl::StatusCode::kUnimplemented, "q_proj.weight': dtype 'I32'");
}

TEST_F(WeightsTest, RefusesMixedDtypesInOneStack) {
  Read("llama2");
  Tensor& tensor = tensors_["model.layers.0.self_attn.k_proj.weight"];
  tensor.dtype = "BF16";
  tensor.bytes.resize(tensor.bytes.size() / 2);
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "k_proj.weight is bf16, but model.layers.0.self_attn.q_proj.weight beside it is "
                "f32");
}

TEST_F(WeightsTest, RefusesTensorsThatTheConfigDoesNotAskFor) {
  Read("llama2");
  const Tensor bias{"F32", {64}, std::string(256, '\0')};
  tensors_["model.layers.0.self_attn.q_proj.bias"] = bias;
  ExpectRefused(absl::StatusCode::kInvalidArgument, "q_proj.bias belongs to no part");
  tensors_.erase("model.layers.0.self_attn.q_proj.bias");
  config_["num_hidden_layers"] = 1;
  ExpectRefused(absl::StatusCode::kInvalidArgument, "model.layers.1.");
}

TEST_F(WeightsTest, OldCheckpointsMayCarryRotaryFrequencies) {
  Read("llama2");
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {8}, std::string(32, '\1')};
  Write();
  EXPECT_TRUE(Load().ok());
}

TEST_F(WeightsTest, ATiedHeadMayStandInTheFileIfItIsTheEmbedding) {
  Read("llama3");
  tensors_["lm_head.weight"] = tensors_["model.embed_tokens.weight"];
  Write();
  EXPECT_TRUE(Load().ok());
  tensors_["lm_head.weight"].bytes[5] ^= 1;
  ExpectRefused(absl::StatusCode::kInvalidArgument, "lm_head.weight is not");
}

TEST_F(WeightsTest, NamesATruncatedFile) {
  Read("llama2");
  Write();
  const std::string path = directory_.path() + "/model.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("truncated"));
}

TEST_F(WeightsTest, DataAtOddAddressesGivesTheSameLogits) {
  for (const char* name : {"llama2", "linear", "qwen2"}) {
    tensors_.clear();
    Read(name);
    const std::vector<float> expected = Logits(source_);
    Write(/*padding=*/3);
    EXPECT_EQ(Logits(directory_.path()), expected) << name;
  }
}

// How many scales a tensor of codes has.
enum class Scales { kOne, kPerOutput, kPerGroup };

class Int8CheckpointTest : public WeightsTest {
 protected:
  // Replaces the weights of all layers by codes with scales, as compressed-tensors has them; or, with
  // `dequantise`, by the products of the two.
  void Quantise(Scales scales, const std::string& scale_type, bool dequantise) {
    Read("llama2");
    const std::map<std::string, Tensor> stored = tensors_;
    for (const auto& [name, tensor] : stored) {
      if (!name.ends_with("_proj.weight")) continue;
      const int64_t rows = tensor.shape[0], k = tensor.shape[1];
      const int64_t groups = scales == Scales::kPerGroup ? k / 32 : 1;
      std::string codes, scale_bytes, products;
      for (int64_t i = 0; i < rows * k; ++i) {
        codes.push_back(static_cast<char>(i * 37 % 256 - 128));
      }
      const int64_t num_scales = scales == Scales::kOne ? 1 : rows * groups;
      std::vector<float> values;
      for (int64_t i = 0; i < num_scales; ++i) {
        values.push_back(static_cast<float>(1 + i % 5) / 4096);  // exact in every type
        scale_bytes += Bytes(scale_type, values.back());
      }
      for (int64_t i = 0; i < rows * k; ++i) {
        const int64_t at = scales == Scales::kOne ? 0 : i / (k / groups);
        const float product = static_cast<float>(static_cast<int8_t>(codes[i])) * values[at];
        products += Bytes("F32", product);
      }
      if (dequantise) {
        tensors_[name] = {"F32", tensor.shape, products};
        continue;
      }
      tensors_[name] = {"I8", tensor.shape, codes};
      const std::vector<int64_t> shape =
          scales == Scales::kOne ? std::vector<int64_t>{1} : std::vector<int64_t>{rows, groups};
      tensors_[name + "_scale"] = {scale_type, shape, scale_bytes};
    }
    if (!dequantise) config_["quantization_config"] = Config();
  }

  static nlohmann::json Config() {
    return nlohmann::json::parse(R"({
      "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
      "kv_cache_scheme": null, "quantization_status": "compressed",
      "config_groups": {"group_0": {
        "targets": ["Linear"], "output_activations": null,
        "input_activations": {"num_bits": 8, "type": "int", "dynamic": true, "strategy": "token"},
        "weights": {"num_bits": 8, "type": "int", "symmetric": true, "dynamic": false,
                    "strategy": "channel", "group_size": null, "actorder": null}}}})");
  }

  static std::string Bytes(const std::string& type, float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const std::string all(reinterpret_cast<const char*>(&bits), sizeof(bits));
    return type == "F32" ? all : all.substr(2);  // BF16 is the upper half
  }
};

TEST_F(Int8CheckpointTest, GivesTheLogitsOfTheFloatsThatItStandsFor) {
  for (const Scales scales : {Scales::kOne, Scales::kPerOutput, Scales::kPerGroup}) {
    tensors_.clear();
    Quantise(scales, "F32", /*dequantise=*/true);
    Write();
    const std::vector<float> expected = Logits(directory_.path());
    for (const char* type : {"BF16", "F32"}) {
      tensors_.clear();
      Quantise(scales, type, /*dequantise=*/false);
      Write();
      EXPECT_EQ(Logits(directory_.path()), expected) << static_cast<int>(scales) << " " << type;
    }
  }
}

TEST_F(Int8CheckpointTest, ItsScalesAreRefusedByNameWhereTheyDoNotFit) {
  const std::string name = "model.layers.1.mlp.down_proj.weight_scale";
  const auto quantise = [this] {
    tensors_.clear();
    Quantise(Scales::kPerOutput, "F32", false);
  };
  quantise();
  tensors_.erase(name);
  ExpectRefused(absl::StatusCode::kNotFound, name);
  for (const float bad : {std::nanf(""), -1.0f, HUGE_VALF}) {
    quantise();
    tensors_[name].bytes.replace(20, 4, Bytes("F32", bad));
    ExpectRefused(absl::StatusCode::kInvalidArgument, name + " has ");
  }
  quantise();
  tensors_[name] = {
      "F32", {64, 2}, std::string(64 * 2 * 4, 0)};  // 96 inputs are no two groups of 32
  ExpectRefused(absl::StatusCode::kInvalidArgument, name + " is f32 [64, 2], must be");
  tensors_[name] = {"F32", {63, 1}, std::string(63 * 4, 0)};
  ExpectRefused(absl::StatusCode::kInvalidArgument, "must be floats for [64, 96] weights");
  quantise();
  config_.erase("quantization_config");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "has no quantization_config");
  quantise();
  tensors_["model.layers.0.mlp.up_proj.weight"] = {"F32", {96, 64}, std::string(96 * 64 * 4, 0)};
  ExpectRefused(absl::StatusCode::kInvalidArgument, "must have one dtype");
}

}  // namespace
}  // namespace tandem
