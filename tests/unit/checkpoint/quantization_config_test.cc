// quantization_config of a config.json: the 8-bit weights that are read, and all others refused by the
// field that says so.

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "gtest/gtest.h"
#include "tests/unit/checkpoint/config_json.h"

namespace tandem::quantization_config_test {
namespace {

using config_json::Config;
using config_json::Json;
using config_json::With;

// As compressed-tensors writes it for 8-bit weights whose activations are rounded as the model
// runs.
Json Int8Config() {
  return ParseJson(R"({
    "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
    "kv_cache_scheme": null, "sparsity_config": {},
    "config_groups": {"group_0": {
      "targets": ["Linear"], "output_activations": null,
      "input_activations": {"num_bits": 8, "type": "int", "dynamic": true, "strategy": "token"},
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel",
                  "group_size": null, "actorder": null}}}})");
}

TEST(ModelConfigTest, ReadsInt8WeightsOfCompressedTensors) {
  const auto plain = ParseModelConfig(Config("llama").dump());
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->quantized_weights.has_value());
  Json quantised = Int8Config();
  for (const char* strategy : {"channel", "tensor", "group"}) {
    quantised["config_groups"]["group_0"]["weights"]["strategy"] = strategy;
    const auto config =
        ParseModelConfig(With(Config("llama"), {{"quantization_config", quantised}}).dump());
    ASSERT_TRUE(config.ok()) << config.status();
    ASSERT_TRUE(config->quantized_weights.has_value());
    EXPECT_EQ(config->quantized_weights->dtype, DType::kI8);
    EXPECT_EQ(config->quantized_weights->scale_suffix, "_scale");
  }
  quantised["config_groups"]["group_0"]["input_activations"] = nullptr;
  EXPECT_TRUE(
      ParseModelConfig(With(Config("llama"), {{"quantization_config", quantised}}).dump()).ok());
}

TEST(ModelConfigTest, ReadsFp8WeightsOfCompressedTensors) {
  Json quantised = Int8Config();
  quantised["format"] = "float-quantized";
  Json& group = quantised["config_groups"]["group_0"];
  group["weights"]["type"] = "float";
  for (const bool is_dynamic : {true, false}) {
    group["input_activations"] = {{"num_bits", 8}, {"type", "float"}, {"dynamic", is_dynamic}};
    const auto config =
        ParseModelConfig(With(Config("llama"), {{"quantization_config", quantised}}).dump());
    ASSERT_TRUE(config.ok()) << config.status();
    ASSERT_TRUE(config->quantized_weights.has_value());
    EXPECT_EQ(config->quantized_weights->dtype, DType::kF8E4M3);
    EXPECT_EQ(config->quantized_weights->block_outputs, 0);
    EXPECT_EQ(config->quantized_weights->has_input_scales, !is_dynamic);
  }
  group["weights"]["strategy"] = "block";
  group["weights"]["block_structure"] = {64, 128};
  const auto config =
      ParseModelConfig(With(Config("llama"), {{"quantization_config", quantised}}).dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantized_weights->block_outputs, 64);
  EXPECT_EQ(config->quantized_weights->block_inputs, 128);
}

TEST(ModelConfigTest, ReadsFp8WeightsWithTheirOwnMethod) {
  Json quantised = {{"quant_method", "fp8"},
                    {"fmt", "e4m3"},
                    {"activation_scheme", "dynamic"},
                    {"weight_block_size", {128, 128}},
                    {"modules_to_not_convert", nullptr}};
  const auto blocks =
      ParseModelConfig(With(Config("llama"), {{"quantization_config", quantised}}).dump());
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(blocks->quantized_weights->scale_suffix, "_scale_inv");
  EXPECT_EQ(blocks->quantized_weights->block_outputs, 128);
  EXPECT_FALSE(blocks->quantized_weights->has_input_scales);
  quantised.erase("weight_block_size");
  quantised["activation_scheme"] = "static";
  const auto tensors =
      ParseModelConfig(With(Config("llama"), {{"quantization_config", quantised}}).dump());
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->quantized_weights->scale_suffix, "_scale");
  EXPECT_TRUE(tensors->quantized_weights->has_input_scales);
}

TEST(ModelConfigTest, RefusesOtherFp8ByItsField) {
  const std::pair<const char*, Json> cases[] = {{"fmt", "e5m2"},
                                                {"activation_scheme", "other"},
                                                {"weight_block_size", {128}},
                                                {"weight_block_size", {128, 0}},
                                                {"weight_block_size", {128, "128"}},
                                                {"weight_block_size", 128}};
  for (const auto& [name, value] : cases) {
    Json quantised = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    quantised[name] = value;
    EXPECT_CONFIG_REFUSED(kUnimplemented,
                          With(Config("llama"), {{"quantization_config", quantised}}).dump(),
                          "quantization_config." + std::string(name));
  }
}

TEST(ModelConfigTest, RefusesOtherQuantisationByItsField) {
  const std::pair<const char*, Json> cases[] = {
      {"/quant_method", "gptq"},
      {"/format", "pack-quantized"},
      {"/kv_cache_scheme", {{"num_bits", 8}}},
      {"/sparsity_config", {{"format", "sparse-bitmask"}}},
      {"/config_groups", Json::object()},
      {"/config_groups/group_0/targets", {"Linear", "Embedding"}},
      {"/config_groups/group_0/output_activations", {{"num_bits", 8}}},
      {"/config_groups/group_0/input_activations/dynamic", false},
      {"/config_groups/group_0/weights/num_bits", 4},
      {"/config_groups/group_0/weights/type", "float"},
      {"/config_groups/group_0/weights/symmetric", false},
      {"/config_groups/group_0/weights/strategy", "tensor_group"},
      {"/config_groups/group_0/weights/actorder", "group"}};
  for (const auto& [path, value] : cases) {
    Json quantised = Int8Config();
    quantised[Json::json_pointer(path)] = value;
    std::string name = "quantization_config" + std::string(path);
    std::replace(name.begin(), name.end(), '/', '.');
    EXPECT_CONFIG_REFUSED(kUnimplemented,
                          With(Config("llama"), {{"quantization_config", quantised}}).dump(), name);
  }
}

}  // namespace
}  // namespace tandem::quantization_config_test
