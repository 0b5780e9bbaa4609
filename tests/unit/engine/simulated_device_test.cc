#include "engine/simulated/simulated_device.h"

#include <cmath>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/tree.h"

namespace tandem::simulated_device_test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string ShippedFile(const std::string& gpu) {
  return TreePath("models/simulated/qwen3-8b-") + gpu + ".json";
}

Json Shipped() { return ParseJson(*ReadParameterFile(ShippedFile("h200"))); }

// The message for the shipped file with one field changed.
std::string Refused(const std::string& pointer, const Json& value) {
  Json json = Shipped();
  json[Json::json_pointer(pointer)] = value;
  const auto parsed = ParseSimulatedDevice(json.dump(), nullptr);
  EXPECT_FALSE(parsed.ok()) << pointer;
  return std::string(parsed.status().message());
}

std::string RefusedWithout(const std::string& section, const std::string& field) {
  Json json = Shipped();
  json[Json::json_pointer(section)].erase(field);
  const auto parsed = ParseSimulatedDevice(json.dump(), nullptr);
  EXPECT_FALSE(parsed.ok()) << field;
  return std::string(parsed.status().message());
}

Json Quantiles(double first, double last) {
  return {{{"max_prompt_tokens", 100},
           {"quantiles", {{{"share", first}, {"tokens", 4}}, {{"share", last}, {"tokens", 40}}}}}};
}

ModelConfig SampleConfig() {
  return {.num_layers = 4,
          .num_kv_heads = 2,
          .head_dim = 32,
          .vocab_size = 500,
          .max_position_embeddings = 1024,
          .eos_token_ids = {3}};
}

TEST(SimulatedDeviceTest, ShippedFilesAreValidAndLargerGpusAreFaster) {
  double decode_ms = INFINITY;
  for (const char* gpu : {"a100", "h100", "h200"}) {
    const auto device = LoadSimulatedDevice(ShippedFile(gpu));
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ(device->name, std::string("qwen3-8b-") + gpu);
    EXPECT_EQ(device->BytesPerToken(), 2 * 36 * 8 * 128 * 2);
    EXPECT_EQ(device->eos_token_ids, std::vector<int32_t>{151645});
    ASSERT_EQ(device->parameters.links.size(), 1u);
    const auto steps = StepModel::Create(device->parameters.steps);
    ASSERT_TRUE(steps.ok());
    const double ms = steps->Step({.decode_sequences = 32, .decode_context = 32'000}).count();
    EXPECT_LT(ms, decode_ms);
    decode_ms = ms;
  }
}

TEST(SimulatedDeviceTest, WrongFieldIsRefusedByName) {
  EXPECT_THAT(Refused("/simulated/name", "a/b"), HasSubstr("simulated.name is 'a/b'"));
  EXPECT_THAT(Refused("/simulated/name", ""), HasSubstr("simulated.name"));
  EXPECT_THAT(Refused("/simulated/vocab_size", 1), HasSubstr("simulated.vocab_size"));
  EXPECT_THAT(Refused("/simulated/eos_token_ids", Json::array({151936})),
              HasSubstr("simulated.eos_token_ids[]"));
  EXPECT_THAT(Refused("/simulated/max_context_tokens", -5),
              HasSubstr("simulated.max_context_tokens"));
  EXPECT_THAT(Refused("/simulated/kv_tokens", 0), HasSubstr("simulated.kv_tokens"));
  EXPECT_THAT(Refused("/simulated/max_step_tokens", 0), HasSubstr("simulated.max_step_tokens"));
  EXPECT_THAT(Refused("/simulated/max_sequences", 1.5), HasSubstr("simulated.max_sequences"));
  EXPECT_THAT(Refused("/simulated/kv/layers", 0), HasSubstr("simulated.kv.layers"));
  EXPECT_THAT(Refused("/simulated/kv/head_dim", 100), HasSubstr("head_dim"));
  EXPECT_THAT(Refused("/simulated/kv/dtype", "i32"), HasSubstr("simulated.kv.dtype"));
  EXPECT_THAT(Refused("/simulated/kv", 3), HasSubstr("simulated.kv is no object"));
  EXPECT_THAT(Refused("/simulated", 3), HasSubstr("simulated is no object"));
  EXPECT_THAT(Refused("/simulated/kv_token", 3), HasSubstr("simulated.'kv_token' is unknown"));
}

TEST(SimulatedDeviceTest, MissingFieldIsRefusedByName) {
  for (const char* field : {"name", "kv", "vocab_size", "max_context_tokens", "kv_tokens"}) {
    EXPECT_THAT(RefusedWithout("/simulated", field), HasSubstr(std::string("simulated.") + field));
  }
  EXPECT_THAT(RefusedWithout("/step/alpha", "a1_ms"), HasSubstr("step.alpha.a1_ms"));
  EXPECT_THAT(RefusedWithout("", "simulated"), HasSubstr("simulated is missing"));
}

TEST(SimulatedDeviceTest, CoefficientThatIsNoCostIsRefused) {
  EXPECT_THAT(Refused("/step/beta/b1_ms", -0.1), HasSubstr("step.beta.b1_ms"));
  std::string text = Shipped().dump();
  const size_t place = text.find("\"a1_ms\":");
  const size_t end = text.find_first_of(",}", place);
  text.replace(place, end - place, "\"a1_ms\":NaN");
  EXPECT_THAT(std::string(ParseSimulatedDevice(text, nullptr).status().message()),
              HasSubstr("a1_ms"));
}

TEST(SimulatedDeviceTest, WrongOutputLengthsAreRefused) {
  EXPECT_THAT(Refused("/simulated/output_lengths", 3), HasSubstr("simulated.output_lengths"));
  EXPECT_THAT(Refused("/simulated/output_lengths", Quantiles(0, 0.5)),
              HasSubstr("prompts up to 100 tokens must go from share 0 to share 1"));
  EXPECT_THAT(Refused("/simulated/output_lengths", Quantiles(0.2, 1)), HasSubstr("from share 0"));
  EXPECT_THAT(Refused("/simulated/output_lengths", Quantiles(0, 1.5)), HasSubstr("share"));
  Json falling = Quantiles(0, 1);
  falling[0]["quantiles"][0]["tokens"] = 50;
  EXPECT_THAT(Refused("/simulated/output_lengths", falling), HasSubstr("do not rise at share 1"));
  Json twice = Quantiles(0, 1);
  twice.push_back(twice[0]);
  EXPECT_THAT(Refused("/simulated/output_lengths", twice), HasSubstr("100 after 100"));
  Json misspelt = Quantiles(0, 1);
  misspelt[0]["max_tokens"] = 50;
  EXPECT_THAT(Refused("/simulated/output_lengths", misspelt), HasSubstr("'max_tokens' is unknown"));
}

TEST(SimulatedDeviceTest, OutputLengthsAreRead) {
  Json json = Shipped();
  json["simulated"]["output_lengths"] = Quantiles(0, 1);
  const auto device = ParseSimulatedDevice(json.dump(), nullptr);
  ASSERT_TRUE(device.ok()) << device.status();
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto length = device->lengths.LengthOf(seed, 5000);
    ASSERT_TRUE(length.has_value());
    EXPECT_GE(*length, 4);
    EXPECT_LE(*length, 40);
  }
}

TEST(SimulatedDeviceTest, ModelWithATokenizerGivesItsTokens) {
  const ModelConfig model = SampleConfig();
  const auto device = ParseSimulatedDevice(Shipped().dump(), &model);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->vocab_size, 500);
  EXPECT_EQ(device->eos_token_ids, model.eos_token_ids);
  EXPECT_EQ(device->kv.num_layers, 36);
  EXPECT_NE(device->fingerprint, ParseSimulatedDevice(Shipped().dump(), nullptr)->fingerprint);
}

TEST(SimulatedDeviceTest, FileOfTheProfilerTakesTheShapeOfItsModel) {
  Json json = Shipped();
  json.erase("simulated");
  json["provenance"]["model"] = "models/sample";
  const ModelConfig model = SampleConfig();
  const auto device = ParseSimulatedDevice(json.dump(), &model);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->name, "models-sample");
  EXPECT_EQ(device->BytesPerToken(), 2 * 4 * 2 * 32 * 2);
  EXPECT_EQ(device->max_context_tokens, 1024);
  EXPECT_EQ(device->kv_tokens, 0);
}

TEST(SimulatedDeviceTest, FileThatIsNotThereIsNamed) {
  const absl::Status status = LoadSimulatedDevice("/nowhere/gpu.json").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/gpu.json"));
}

}  // namespace
}  // namespace tandem::simulated_device_test
