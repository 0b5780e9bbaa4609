// Checkpoints whose weights are read, or refused by the name of the tensor that does not fit.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/transformer/weights_fixture.h"

namespace tandem::weights_test {
namespace {

using testing::HasSubstr;

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

TEST_F(WeightsTest, EmbeddingAndHeadStayAsTheyAreOnRequest) {
  const std::string directory = TreePath("tests/golden/checkpoints/llama2");
  const ModelConfig config = LoadModelConfig(directory).value();
  const auto checkpoint = Checkpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto backend = OpenBackend("cpu", {.num_threads = 1});
  const auto all = PlanWeights(config, **checkpoint, *backend->ops, WeightsAs::kInt8);
  const auto layers = PlanWeights(config, **checkpoint, *backend->ops, WeightsAs::kInt8Layers);
  ASSERT_TRUE(all.ok() && layers.ok()) << all.status() << layers.status();
  for (const WeightLayout& layout : {*all, *layers}) {
    EXPECT_EQ(layout.layers[0].qkv.format, WeightFormat::Int8());
    EXPECT_EQ(layout.layers[1].down.format, WeightFormat::Int8());
  }
  EXPECT_EQ(all->embedding.format, WeightFormat::Int8());
  EXPECT_EQ(all->lm_head.format, WeightFormat::Int8());
  EXPECT_EQ(layers->embedding.format, WeightFormat(DType::kF32));
  EXPECT_EQ(layers->lm_head.format, WeightFormat(DType::kF32));
}

}  // namespace
}  // namespace tandem::weights_test
