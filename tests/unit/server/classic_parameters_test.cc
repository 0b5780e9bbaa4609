#include "server/assembly/classic_parameters.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem::classic_parameters_test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json Scalars() {
  return {{"alpha_ms_per_token", 0.125},  {"beta_ms", 51.5},
          {"gamma_ms_per_token", 0.0625}, {"batch_thresh", 12},
          {"bandwidth_gb_per_s", 12.5},   {"setup_ms", 0.5}};
}

absl::StatusOr<ClassicCoefficients> Parse(const Json& scalars) {
  return ParseClassicParameters(Json{{"classic", scalars}, {"step", "is not read"}}.dump());
}

TEST(ClassicParametersTest, AreReadFromTheObjectOfThatName) {
  const auto read = Parse(Scalars());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->alpha_ms, 0.125);
  EXPECT_EQ(read->beta_ms, 51.5);
  EXPECT_EQ(read->gamma_ms, 0.0625);
  EXPECT_EQ(read->batch_thresh, 12);
  EXPECT_EQ(read->bandwidth_gb_per_s, 12.5);
}

TEST(ClassicParametersTest, WithoutAKneeThePublishedOneIsTaken) {
  Json scalars = Scalars();
  scalars["batch_thresh"] = nullptr;
  ASSERT_TRUE(Parse(scalars).ok());
  EXPECT_EQ(Parse(scalars)->batch_thresh, 16);
}

TEST(ClassicParametersTest, WhatIsWrongIsNamed) {
  const auto expect_refused = [](const Json& scalars, const std::string& what) {
    const absl::Status status = Parse(scalars).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  for (const char* name : {"alpha_ms_per_token", "beta_ms", "gamma_ms_per_token", "batch_thresh",
                           "bandwidth_gb_per_s"}) {
    Json scalars = Scalars();
    scalars[name] = -1;
    expect_refused(scalars, std::string("classic.") + name);
    scalars[name] = "1";
    expect_refused(scalars, std::string("classic.") + name);
  }
  Json unmeasured = Scalars();
  unmeasured["bandwidth_gb_per_s"] = nullptr;
  expect_refused(unmeasured, "--links on");
  unmeasured["bandwidth_gb_per_s"] = 0;
  expect_refused(unmeasured, "classic.bandwidth_gb_per_s");
  expect_refused("none", "no object \"classic\"");
  EXPECT_FALSE(ParseClassicParameters("{\"classic\": {\"beta_ms\": NaN}}").ok());
  EXPECT_FALSE(ParseClassicParameters("").ok());
  EXPECT_TRUE(absl::IsNotFound(LoadClassicParameters("/no/such/file").status()));
}

}  // namespace
}  // namespace tandem::classic_parameters_test
