// What a config.json means: the families, rope, sliding windows, and which files it is read from.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/checkpoint/checkpoint_files.h"
#include "tests/unit/checkpoint/config_json.h"

namespace tandem::model_config_test {
namespace {

using config_json::Config;
using config_json::Json;
using config_json::Parsed;
using config_json::With;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_CONFIG_REFUSED(kUnimplemented, With(Config("mistral"), {{"attention_bias", true}}).dump(),
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
    EXPECT_CONFIG_REFUSED(kUnimplemented, With(Config("qwen2"), {{"rope_scaling", scaling}}).dump(),
                          std::string("rope_scaling.rope_type is '") + type);
  }
  EXPECT_CONFIG_REFUSED(kUnimplemented,
                        With(Config("llama"), {{"partial_rotary_factor", 0.5}}).dump(),
                        "partial_rotary_factor is 0.5");
  const Json partial = {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}};
  EXPECT_CONFIG_REFUSED(kUnimplemented,
                        With(Config("llama"), {{"rope_parameters", partial}}).dump(),
                        "rope_parameters.partial_rotary_factor is 0.25");
  const Json nested = {{"full_attention", {{"rope_theta", 1e6}}}};
  EXPECT_CONFIG_REFUSED(kUnimplemented, With(Config("qwen3"), {{"rope_parameters", nested}}).dump(),
                        "full_attention");
  const Json no_factor = {{"rope_type", "linear"}};
  EXPECT_CONFIG_REFUSED(kInvalidArgument,
                        With(Config("llama"), {{"rope_scaling", no_factor}}).dump(),
                        "rope_scaling.factor is missing");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("llama"), {{"rope_scaling", 3}}).dump(),
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
  EXPECT_CONFIG_REFUSED(kUnimplemented, qwen({{"max_window_layers", 2}}).dump(),
                        "max_window_layers 2");
  EXPECT_CONFIG_REFUSED(kUnimplemented, With(Config("llama"), {{"sliding_window", 24}}).dump(),
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
  EXPECT_CONFIG_REFUSED(kUnimplemented, With(Config("qwen3"), {{"layer_types", mixed}}).dump(),
                        "mixes");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("qwen3"), {{"layer_types", sliding}}).dump(),
                        "layer_types says sliding_attention");
  EXPECT_CONFIG_REFUSED(kInvalidArgument,
                        With(Config("qwen3"), {{"layer_types", {"full_attention"}}}).dump(),
                        "num_hidden_layers = 3");
  EXPECT_CONFIG_REFUSED(
      kUnimplemented,
      With(Config("qwen3"), {{"layer_types", {"linear", "linear", "linear"}}}).dump(), "'linear'");
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
    EXPECT_CONFIG_REFUSED(kUnimplemented, With(Config("llama"), {{name, value}}).dump(), name);
  }
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

}  // namespace
}  // namespace tandem::model_config_test
