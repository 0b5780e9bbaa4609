#pragma once

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint/model_config.h"
#include "nlohmann/json.hpp"

// Texts of config.json, and what they are parsed to or refused for.

namespace tandem::config_json {

using Json = nlohmann::json;

// A small valid config of that family; tests change one thing each.
inline Json Config(const std::string& model_type) {
  return {{"model_type", model_type}, {"hidden_size", 64},
          {"num_hidden_layers", 3},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"intermediate_size", 96},
          {"vocab_size", 320},        {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5}};
}

// `config` with these fields in place of its own.
inline Json With(Json config, const Json& changes) {
  config.update(changes);
  return config;
}

// What `json` means; it must be valid.
inline ModelConfig Parsed(const Json& json) {
  const auto config = ParseModelConfig(json.dump());
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig{});
}

}  // namespace tandem::config_json

// `json_text` must be refused with this code, in a message that contains `text`.
#define EXPECT_CONFIG_REFUSED(expected_code, json_text, text)               \
  do {                                                                      \
    const absl::Status status = ParseModelConfig(json_text).status();       \
    EXPECT_EQ(status.code(), absl::StatusCode::expected_code) << status;    \
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(text)); \
  } while (false)
