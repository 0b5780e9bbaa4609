// Configs with values that cannot be, and texts that are no config, refused by name and value.

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/checkpoint/config_json.h"

namespace tandem::model_config_refusals_test {
namespace {

using config_json::Config;
using config_json::Json;
using config_json::With;
using testing::HasSubstr;

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
    EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("llama"), {{"rms_norm_eps", value}}).dump(),
                          "rms_norm_eps is ");
  }
  EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("llama"), {{"rope_theta", 0}}).dump(),
                        "rope_theta is 0");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("llama"), {{"eos_token_id", 320}}).dump(),
                        "eos_token_id has 320");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("llama"), {{"eos_token_id", {1, -1}}}).dump(),
                        "eos_token_id has -1");
  EXPECT_CONFIG_REFUSED(kInvalidArgument,
                        With(Config("llama"), {{"tie_word_embeddings", 1}}).dump(),
                        "tie_word_embeddings is 1");
}

TEST(ModelConfigTest, RefusesShapesThatDoNotDivide) {
  EXPECT_CONFIG_REFUSED(kInvalidArgument,
                        With(Config("llama"), {{"num_key_value_heads", 3}}).dump(),
                        "num_attention_heads is 4: not a multiple of num_key_value_heads 3");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("llama"), {{"hidden_size", 66}}).dump(),
                        "hidden_size is 66");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("llama"), {{"head_dim", 15}}).dump(),
                        "head_dim is 15");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, With(Config("llama"), {{"hidden_size", 60}}).dump(),
                        "head_dim is 15");
}

TEST(ModelConfigTest, NamesMissingFields) {
  for (const char* name : {"model_type", "hidden_size", "num_hidden_layers", "vocab_size",
                           "num_attention_heads", "intermediate_size", "max_position_embeddings"}) {
    Json json = Config("llama");
    json.erase(name);
    EXPECT_CONFIG_REFUSED(kInvalidArgument, json.dump(),
                          std::string("the field ") + name + " is missing");
  }
}

TEST(ModelConfigTest, NamesTheFieldOfANumberThatIsNotFinite) {
  EXPECT_CONFIG_REFUSED(kInvalidArgument, R"({"rms_norm_eps": NaN})",
                        "field 'rms_norm_eps': NaN is not a finite number");
  EXPECT_CONFIG_REFUSED(kInvalidArgument,
                        R"({"rope_scaling": {"factor": -Infinity, "type": "linear"}})",
                        "field 'rope_scaling.factor': -Infinity is not a finite number");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, R"({"rope_theta": 1e999})",
                        "field 'rope_theta': 1e999 is not a finite number");
}

// What nemotron_h, falcon_h1 and mamba2 publish.
TEST(ModelConfigTest, AnUnknownFamilyIsNamedRatherThanTheInfinityInItsConfig) {
  for (const char* family : {"nemotron_h", "falcon_h1", "mamba2"}) {
    EXPECT_CONFIG_REFUSED(kUnimplemented,
                          std::string(R"({"time_step_limit": [0.0, Infinity], "model_type": ")") +
                              family + R"(", "note": "\" Infinity"})",
                          "model_type is '" + std::string(family) + "'");
  }
  EXPECT_CONFIG_REFUSED(kInvalidArgument, R"({"model_type": "llama", "rms_norm_eps": NaN})",
                        "NaN is not a finite number");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, R"({"model_type": "mamba2", "a": [Infinity)", "Infinity");
}

TEST(ModelConfigTest, RefusesWhatIsNoConfig) {
  EXPECT_CONFIG_REFUSED(kInvalidArgument, "", "not JSON");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, "[1]", "an array, not an object");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, R"({"a": 1, "a": 2})", "'a' stands twice");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, std::string(100000, '['), "nested deeper");
  EXPECT_CONFIG_REFUSED(kInvalidArgument, R"({"hidden_size": 12)", "not JSON at byte");
}

}  // namespace
}  // namespace tandem::model_config_refusals_test
