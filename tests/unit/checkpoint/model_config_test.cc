#include "model/checkpoint/model_config.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/checkpoint/checkpoint_files.h"

namespace tandem::model_config_test {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A small valid config; tests change one thing each.
Json Config(const std::string& model_type) {
  return {{"model_type", model_type}, {"hidden_size", 64},
          {"num_hidden_layers", 3},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"intermediate_size", 96},
          {"vocab_size", 320},        {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5}};
}

Json With(Json config, const Json& changes) {
  config.update(changes);
  return config;
}

ModelConfig Parsed(const Json& json) {
  const auto config = ParseModelConfig(json.dump());
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig{});
}

#define EXPECT_REFUSED(expected_code, json_text, text)                   \
  do {                                                                   \
    const absl::Status status = ParseModelConfig(json_text).status();    \
    EXPECT_EQ(status.code(), absl::StatusCode::expected_code) << status; \
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));         \
  } while (false)

TEST(ModelConfigTest, Llama) {
  const ModelConfig c = Parsed(With(Config("llama"), {{"architectures", {"LlamaForCausalLM"}},
                                                      {"rope_theta", 500000.0},
                                                      {"bos_token_id", 1},
                                                      {"eos_token_id", {2, 5, 2}},
                                                      {"torch_dtype", "float16"}}));
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.num_layers, 3);
  EXPECT_EQ(c.num_heads, 4);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.intermediate_size, 96);
  EXPECT_EQ(c.vocab_size, 320);
  EXPECT_EQ(c.max_position_embeddings, 2048);
  EXPECT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.rope.theta, 500000);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(c.sliding_window, 0);
  EXPECT_FALSE(c.qkv_bias || c.output_bias || c.qk_norm || c.tie_word_embeddings);
  EXPECT_EQ(c.dtype, DType::kF16);
  EXPECT_TRUE(c.names_dtype);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(2, 5));
  EXPECT_EQ(c.bos_token_id, 1);
}

TEST(ModelConfigTest, DefaultsOfTheFamilies) {
  Json json = Config("llama");
  json.erase("num_key_value_heads");
  EXPECT_EQ(Parsed(json).num_kv_heads, 4);
  EXPECT_THAT(Parsed(json).eos_token_ids, IsEmpty());
  EXPECT_EQ(Parsed(json).bos_token_id, -1);

  const ModelConfig qwen2 = Parsed(Config("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_EQ(qwen2.sliding_window, 0);

  const ModelConfig qwen3 = Parsed(Config("qwen3"));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(Parsed(With(Config("qwen3"), {{"head_dim", 32}})).head_dim, 32);

  EXPECT_EQ(Parsed(Config("mistral")).sliding_window, 4096);
}

TEST(ModelConfigTest, Biases) {
  const ModelConfig llama = Parsed(With(Config("llama"), {{"attention_bias", true}}));
  EXPECT_TRUE(llama.qkv_bias);
  EXPECT_TRUE(llama.output_bias);
  EXPECT_REFUSED(kUnimplemented, With(Config("mistral"), {{"attention_bias", true}}).dump(),
                 "attention_bias is true");
}

TEST(ModelConfigTest, RopeScalingInAllItsSpellings) {
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  for (const char* type_key : {"type", "rope_type"}) {
    for (const char* object : {"rope_scaling", "rope_parameters"}) {
      const Json scaling = With(llama3, {{type_key, "llama3"}, {"rope_theta", 500000}});
      const RopeConfig rope = Parsed(With(Config("llama"), {{object, scaling}})).rope;
      EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
      EXPECT_EQ(rope.theta, 500000);
      EXPECT_EQ(rope.factor, 8);
      EXPECT_EQ(rope.low_freq_factor, 1);
      EXPECT_EQ(rope.high_freq_factor, 4);
      EXPECT_EQ(rope.original_max_position_embeddings, 8192);
    }
  }
  const Json linear = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(Parsed(With(Config("llama"), {{"rope_scaling", linear}})).rope.scaling,
            RopeScaling::kLinear);
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  const RopeConfig rope = Parsed(With(Config("qwen3"), {{"rope_parameters", plain}})).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(rope.theta, 1e6f);
}

TEST(ModelConfigTest, RefusesRopeThatItDoesNotCompute) {
  for (const char* type : {"yarn", "dynamic", "longrope", "su", "mrope"}) {
    const Json scaling = {{"rope_type", type}, {"factor", 2.0}};
    EXPECT_REFUSED(kUnimplemented, With(Config("qwen2"), {{"rope_scaling", scaling}}).dump(),
                   std::string("rope_scaling.rope_type is '") + type);
  }
  EXPECT_REFUSED(kUnimplemented, With(Config("llama"), {{"partial_rotary_factor", 0.5}}).dump(),
                 "partial_rotary_factor is 0.5");
  const Json partial = {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}};
  EXPECT_REFUSED(kUnimplemented, With(Config("llama"), {{"rope_parameters", partial}}).dump(),
                 "rope_parameters.partial_rotary_factor is 0.25");
  const Json nested = {{"full_attention", {{"rope_theta", 1e6}}}};
  EXPECT_REFUSED(kUnimplemented, With(Config("qwen3"), {{"rope_parameters", nested}}).dump(),
                 "full_attention");
  const Json no_factor = {{"rope_type", "linear"}};
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"rope_scaling", no_factor}}).dump(),
                 "rope_scaling.factor is missing");
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"rope_scaling", 3}}).dump(),
                 "rope_scaling is 3");
}

TEST(ModelConfigTest, SlidingWindows) {
  EXPECT_EQ(Parsed(With(Config("mistral"), {{"sliding_window", nullptr}})).sliding_window, 0);
  EXPECT_EQ(Parsed(With(Config("mistral"), {{"sliding_window", 24}})).sliding_window, 24);
  const auto qwen = [](const Json& changes) {
    return With(With(Config("qwen2"), {{"use_sliding_window", true}, {"sliding_window", 24}}),
                changes);
  };
  EXPECT_EQ(Parsed(qwen({{"use_sliding_window", false}})).sliding_window, 0);
  EXPECT_EQ(Parsed(qwen({{"max_window_layers", 0}})).sliding_window, 24);
  EXPECT_EQ(Parsed(qwen({{"max_window_layers", 3}})).sliding_window, 0);
  EXPECT_EQ(Parsed(qwen({{"sliding_window", nullptr}})).sliding_window, 0);
  EXPECT_REFUSED(kUnimplemented, qwen({{"max_window_layers", 2}}).dump(), "max_window_layers 2");
  EXPECT_REFUSED(kUnimplemented, With(Config("llama"), {{"sliding_window", 24}}).dump(),
                 "sliding_window is 24");
}

TEST(ModelConfigTest, LayerTypes) {
  const Json full = Json::array({"full_attention", "full_attention", "full_attention"});
  const Json sliding = Json::array({"sliding_attention", "sliding_attention", "sliding_attention"});
  const Json mixed = Json::array({"sliding_attention", "full_attention", "full_attention"});
  const Json window = {{"use_sliding_window", true}, {"sliding_window", 24}};
  EXPECT_EQ(Parsed(With(Config("qwen3"), {{"layer_types", full}})).sliding_window, 0);
  EXPECT_EQ(Parsed(With(With(Config("qwen3"), window), {{"layer_types", sliding}})).sliding_window,
            24);
  EXPECT_REFUSED(kUnimplemented, With(Config("qwen3"), {{"layer_types", mixed}}).dump(), "mixes");
  EXPECT_REFUSED(kInvalidArgument, With(Config("qwen3"), {{"layer_types", sliding}}).dump(),
                 "layer_types says sliding_attention");
  EXPECT_REFUSED(kInvalidArgument,
                 With(Config("qwen3"), {{"layer_types", {"full_attention"}}}).dump(),
                 "num_hidden_layers = 3");
  EXPECT_REFUSED(kUnimplemented,
                 With(Config("qwen3"), {{"layer_types", {"linear", "linear", "linear"}}}).dump(),
                 "'linear'");
}

TEST(ModelConfigTest, RefusesByNameWhatItDoesNotCompute) {
  const Json cases = {{"model_type", "gemma2"},
                      {"hidden_act", "gelu"},
                      {"mlp_bias", true},
                      {"pretraining_tp", 2},
                      {"quantization_config", {{"quant_method", "gptq"}}},
                      {"architectures", {"LlamaForSequenceClassification"}},
                      {"torch_dtype", "float8_e4m3fn"}};
  for (const auto& [name, value] : cases.items()) {
    EXPECT_REFUSED(kUnimplemented, With(Config("llama"), {{name, value}}).dump(), name);
  }
}

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
    EXPECT_REFUSED(kUnimplemented,
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
    EXPECT_REFUSED(kUnimplemented,
                   With(Config("llama"), {{"quantization_config", quantised}}).dump(), name);
  }
}

TEST(ModelConfigTest, RefusesValuesOutOfRangeByNameAndValue) {
  for (const char* name :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "intermediate_size", "vocab_size", "max_position_embeddings", "head_dim"}) {
    for (const Json& value : {Json(0), Json(-1), Json(uint64_t{1} << 32), Json(uint64_t{1} << 63),
                              Json(1.5), Json(1e300), Json("64"), Json(true), Json::array()}) {
      const absl::Status status =
          ParseModelConfig(With(Config("llama"), {{name, value}}).dump()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << " " << value;
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(name) + " is "));
    }
  }
  for (const Json& value : {Json(0), Json(-1e-5), Json(1.0), Json("1e-5")}) {
    EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"rms_norm_eps", value}}).dump(),
                   "rms_norm_eps is ");
  }
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"rope_theta", 0}}).dump(),
                 "rope_theta is 0");
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"eos_token_id", 320}}).dump(),
                 "eos_token_id has 320");
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"eos_token_id", {1, -1}}}).dump(),
                 "eos_token_id has -1");
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"tie_word_embeddings", 1}}).dump(),
                 "tie_word_embeddings is 1");
}

TEST(ModelConfigTest, RefusesShapesThatDoNotDivide) {
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"num_key_value_heads", 3}}).dump(),
                 "num_attention_heads is 4: not a multiple of num_key_value_heads 3");
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"hidden_size", 66}}).dump(),
                 "hidden_size is 66");
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"head_dim", 15}}).dump(),
                 "head_dim is 15");
  EXPECT_REFUSED(kInvalidArgument, With(Config("llama"), {{"hidden_size", 60}}).dump(),
                 "head_dim is 15");
}

TEST(ModelConfigTest, NamesMissingFields) {
  for (const char* name : {"model_type", "hidden_size", "num_hidden_layers", "vocab_size",
                           "num_attention_heads", "intermediate_size", "max_position_embeddings"}) {
    Json json = Config("llama");
    json.erase(name);
    EXPECT_REFUSED(kInvalidArgument, json.dump(), std::string("the field ") + name + " is missing");
  }
}

TEST(ModelConfigTest, NamesTheFieldOfANumberThatIsNotFinite) {
  EXPECT_REFUSED(kInvalidArgument, R"({"rms_norm_eps": NaN})",
                 "field 'rms_norm_eps': NaN is not a finite number");
  EXPECT_REFUSED(kInvalidArgument, R"({"rope_scaling": {"factor": -Infinity, "type": "linear"}})",
                 "field 'rope_scaling.factor': -Infinity is not a finite number");
  EXPECT_REFUSED(kInvalidArgument, R"({"rope_theta": 1e999})",
                 "field 'rope_theta': 1e999 is not a finite number");
}

// What nemotron_h, falcon_h1 and mamba2 publish.
TEST(ModelConfigTest, AnUnknownFamilyIsNamedRatherThanTheInfinityInItsConfig) {
  for (const char* family : {"nemotron_h", "falcon_h1", "mamba2"}) {
    EXPECT_REFUSED(kUnimplemented,
                   std::string(R"({"time_step_limit": [0.0, Infinity], "model_type": ")") + family +
                       R"(", "note": "\" Infinity"})",
                   "model_type is '" + std::string(family) + "'");
  }
  EXPECT_REFUSED(kInvalidArgument, R"({"model_type": "llama", "rms_norm_eps": NaN})",
                 "NaN is not a finite number");
  EXPECT_REFUSED(kInvalidArgument, R"({"model_type": "mamba2", "a": [Infinity)", "Infinity");
}

TEST(ModelConfigTest, RefusesWhatIsNoConfig) {
  EXPECT_REFUSED(kInvalidArgument, "", "not JSON");
  EXPECT_REFUSED(kInvalidArgument, "[1]", "an array, not an object");
  EXPECT_REFUSED(kInvalidArgument, R"({"a": 1, "a": 2})", "'a' stands twice");
  EXPECT_REFUSED(kInvalidArgument, std::string(100000, '['), "nested deeper");
  EXPECT_REFUSED(kInvalidArgument, R"({"hidden_size": 12)", "not JSON at byte");
}

TEST(ModelConfigTest, TheEndTokensOfGenerationConfigReplaceThoseOfConfig) {
  const TempDirectory directory;
  directory.Write("config.json", With(Config("llama"), {{"eos_token_id", 7}}).dump());
  EXPECT_THAT(LoadModelConfig(directory.path())->eos_token_ids, ElementsAre(7));
  directory.Write("generation_config.json", R"({"eos_token_id": [8, 9], "temperature": 0.6})");
  EXPECT_THAT(LoadModelConfig(directory.path())->eos_token_ids, ElementsAre(8, 9));
  for (const char* without : {R"({"temperature": 0.6})", R"({"eos_token_id": null})"}) {
    directory.Write("generation_config.json", without);
    EXPECT_THAT(LoadModelConfig(directory.path())->eos_token_ids, ElementsAre(7)) << without;
  }
  directory.Write("generation_config.json", R"({"eos_token_id": [400]})");
  EXPECT_THAT(std::string(LoadModelConfig(directory.path()).status().message()),
              HasSubstr("generation_config.json: eos_token_id has 400"));
}

TEST(ModelConfigTest, LoadNamesThePath) {
  const TempDirectory directory;
  EXPECT_EQ(LoadModelConfig(directory.path()).status().code(), absl::StatusCode::kNotFound);
  directory.Write("config.json", "{}");
  EXPECT_THAT(std::string(LoadModelConfig(directory.path()).status().message()),
              HasSubstr("config.json: the field model_type is missing"));
}

#undef EXPECT_REFUSED

}  // namespace
}  // namespace tandem::model_config_test
