#include "engine/profile/cost_parameters.h"

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem::cost_parameters_test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

CostParameters Example() {
  CostParameters p;
  p.provenance = {.machine = "a machine, 2 cores",
                  .device = "cpu",
                  .threads = 2,
                  .model = "sample",
                  .model_fingerprint = 0x123456789abcdef0,
                  .dtype = "bf16",
                  .kv_dtype = "bf16",
                  .block_tokens = 16,
                  .build = "0.1",
                  .measured = "2026-11-23"};
  p.steps.alpha = {.floor_ms = 4, .base_ms = 2, .token_ms = 0.05, .pair_ms = 1.0 / 3e5};
  p.steps.beta = {
      .buckets = {{.max_sequences = 1, .base_ms = 3}, {.max_sequences = 8, .base_ms = 5}},
      .sequence_ms = 0.5,
      .context_token_ms = 1e-3};
  p.steps.gamma = {.tokens = {256}, .sequences = {8}, .context = {512}, .gamma_ms = {0.07}};
  p.steps.batch_thresh = Knee{.tokens = 48, .low = 32, .high = 64};
  p.links = {{.name = "shm",
              .model = {.setup = ModelTime(0.2),
                        .operation = ModelTime(0.01),
                        .bytes_per_second = 3e9,
                        .contention = {{.streams = 2, .total = 1.5}}}}};
  p.intervals = {{.name = "alpha.a1", .value = 0.05, .low = 0.04, .high = 0.06}};
  p.held_out = {{.name = "prefill", .samples = 12, .mean = 0.02, .max = 0.08, .spread = 0.01}};
  return p;
}

// The message for the example with one field changed or removed.
std::string Refused(const std::string& pointer, const Json& value) {
  Json json = ParseJson(WriteCostParameters(Example()));
  json[Json::json_pointer(pointer)] = value;
  const auto parsed = ParseCostParameters(json.dump());
  EXPECT_FALSE(parsed.ok()) << pointer;
  return std::string(parsed.status().message());
}

TEST(CostParametersTest, WhatIsWrittenIsReadBackExactly) {
  const std::string text = WriteCostParameters(Example());
  const absl::StatusOr<CostParameters> read = ParseCostParameters(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WriteCostParameters(*read), text);
  EXPECT_EQ(read->steps.alpha.pair_ms, 1.0 / 3e5);
  EXPECT_EQ(read->provenance.model_fingerprint, 0x123456789abcdef0u);
  EXPECT_EQ(read->steps.batch_thresh->high, 64);
  ASSERT_EQ(read->links.size(), 1u);
  EXPECT_EQ(read->links[0].model.contention.size(), 1u);
}

TEST(CostParametersTest, TheSixScalarsAreThoseOfTheModel) {
  const Json classic = ParseJson(WriteCostParameters(Example()))["classic"];
  EXPECT_EQ(classic["alpha_ms_per_token"], 0.05);
  EXPECT_NEAR(classic["beta_ms"].get<double>(), 3 + 0.5 + 0.512, 1e-12);
  EXPECT_NEAR(classic["gamma_ms_per_token"].get<double>(), 0.07, 1e-12);
  EXPECT_EQ(classic["batch_thresh"], 48);
  EXPECT_EQ(classic["bandwidth_gb_per_s"], 3);
  EXPECT_EQ(classic["setup_ms"], 0.2);
  CostParameters bare = Example();
  bare.steps.batch_thresh.reset();
  bare.links.clear();
  const Json unknown = ParseJson(WriteCostParameters(bare))["classic"];
  EXPECT_TRUE(unknown["batch_thresh"].is_null());
  EXPECT_TRUE(unknown["bandwidth_gb_per_s"].is_null());
}

TEST(CostParametersTest, RefusesBadFieldsByName) {
  EXPECT_THAT(Refused("/step/alpha/a1_ms", -1), HasSubstr("step.alpha.a1_ms is -1"));
  EXPECT_THAT(Refused("/step/alpha/a2_ms", nullptr), HasSubstr("step.alpha.a2_ms"));
  EXPECT_THAT(Refused("/step/alpha/floor_ms", "NaN"), HasSubstr("step.alpha.floor_ms"));
  EXPECT_THAT(Refused("/step/beta/b0", Json::array()), HasSubstr("step.beta.b0 is empty"));
  EXPECT_THAT(Refused("/step/beta/b0/1/max_sequences", 1), HasSubstr("ends must rise"));
  EXPECT_THAT(Refused("/step/beta/b0/1/ms", 1), HasSubstr("must not fall"));
  EXPECT_THAT(Refused("/step/gamma/ms", Json::array({1, 2})), HasSubstr("has 2 cells"));
  EXPECT_THAT(Refused("/step/gamma/ms/0", -0.5), HasSubstr("step.gamma.ms[].value is -0.5"));
  EXPECT_THAT(Refused("/step/batch_thresh/low", 60), HasSubstr("batch_thresh is 48"));
  EXPECT_THAT(Refused("/links/0/gb_per_s", 0), HasSubstr("bandwidth of 0"));
  EXPECT_THAT(Refused("/links/0/setup_ms", -3), HasSubstr("links[].setup_ms is -3"));
  EXPECT_THAT(Refused("/links", 7), HasSubstr("links is missing"));
  EXPECT_THAT(Refused("/provenance/model_fingerprint", "12"), HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(Refused("/provenance", nullptr), HasSubstr("provenance is missing"));
}

TEST(CostParametersTest, RefusesWhatIsNoParameterFileOfThisVersion) {
  EXPECT_THAT(Refused("/version", 2), HasSubstr("version is 2: this build reads 1"));
  EXPECT_THAT(Refused("/format", "other"), HasSubstr("this is no parameter file"));
  EXPECT_FALSE(ParseCostParameters("").ok());
  EXPECT_FALSE(ParseCostParameters("[]").ok());
  std::string text = WriteCostParameters(Example());
  const size_t place = text.find("0.05");
  EXPECT_FALSE(ParseCostParameters(text.replace(place, 4, "NaN")).ok());
  text = WriteCostParameters(Example());
  EXPECT_FALSE(ParseCostParameters(text.replace(text.find("0.05"), 4, "1e999")).ok());
}

TEST(CostParametersTest, ParametersOfAnotherMachineOrModelAreRefusedWithTheReason) {
  const CostProvenance here = Example().provenance;
  EXPECT_TRUE(CheckProvenance(here, here).ok());
  const auto refused = [&here](auto change) {
    CostProvenance measured = here;
    change(measured);
    const absl::Status status = CheckProvenance(measured, here);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](auto& p) { p.machine = "another"; }),
              HasSubstr("machine another, and here it is a machine, 2 cores"));
  EXPECT_THAT(refused([](auto& p) { p.model_fingerprint = 7; }),
              HasSubstr("model 0000000000000007, and here it is 123456789abcdef0"));
  EXPECT_THAT(refused([](auto& p) { p.device = "cuda:0"; }), HasSubstr("device cuda:0"));
  EXPECT_THAT(refused([](auto& p) { p.threads = 1; }), HasSubstr("threads 1"));
  EXPECT_THAT(refused([](auto& p) { p.dtype = "f32"; }), HasSubstr("dtype f32"));
  EXPECT_THAT(refused([](auto& p) { p.kv_dtype = "f8e4m3"; }), HasSubstr("KV dtype f8e4m3"));
  EXPECT_THAT(refused([](auto& p) { p.block_tokens = 32; }), HasSubstr("block tokens 32"));
  EXPECT_THAT(refused([](auto& p) { p.build = "0.2"; }), HasSubstr("build 0.2"));
  CostProvenance renamed = here;
  renamed.model = "copy";
  renamed.measured = "2026-11-24";
  EXPECT_TRUE(CheckProvenance(renamed, here).ok()) << "a name and a date change nothing";
}

TEST(CostParametersTest, ReadsAFileAndNamesItInErrors) {
  const std::string path = ::testing::TempDir() + "cost_parameters_test.json";
  std::ofstream(path) << WriteCostParameters(Example());
  EXPECT_TRUE(LoadCostParameters(path).ok());
  std::ofstream(path) << "{}";
  EXPECT_THAT(std::string(LoadCostParameters(path).status().message()), HasSubstr(path));
  std::filesystem::remove(path);
  EXPECT_EQ(LoadCostParameters(path).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::cost_parameters_test
