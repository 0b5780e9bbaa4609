#include "engine/profile/kv_sensitivity_file.h"

#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/checkpoint/checkpoint_files.h"

namespace tandem::kv_sensitivity_file_test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr uint64_t kModel = 0x0123456789abcdef;

// The smallest and the largest number are what rounding to decimal digits would change first.
MeasuredKvSensitivity Example() {
  return {.model_fingerprint = kModel,
          .sensitivity = {.k = {1.1f, 1e-7f, 0.3f}, .v = {4e-3f, 123456.79f, 1.0f / 3}}};
}

// The message for the example with one field changed.
std::string Refused(const std::string& pointer, const Json& value) {
  Json json = ParseJson(WriteKvSensitivity(Example()));
  json[Json::json_pointer(pointer)] = value;
  const auto parsed = ParseKvSensitivity(json.dump());
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << pointer;
  return std::string(parsed.status().message());
}

TEST(KvSensitivityFileTest, WhatIsWrittenIsReadBackExactly) {
  const std::string text = WriteKvSensitivity(Example());
  const auto read = ParseKvSensitivity(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model_fingerprint, kModel);
  EXPECT_EQ(read->sensitivity, Example().sensitivity);
  EXPECT_EQ(WriteKvSensitivity(*read), text);
  EXPECT_EQ(ParseJson(text)["model_fingerprint"], "0123456789abcdef");
}

TEST(KvSensitivityFileTest, RefusesBadFieldsByName) {
  EXPECT_THAT(Refused("/format", "tandem-cost-model"), HasSubstr("\"tandem-kv-sensitivity\""));
  EXPECT_THAT(Refused("/version", 2), HasSubstr("version is 2: this build reads 1"));
  EXPECT_THAT(Refused("/model_fingerprint", "12"), HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(Refused("/model_fingerprint", "0123456789abcdeg"), HasSubstr("hexadecimal"));
  EXPECT_THAT(Refused("/k", nullptr), HasSubstr("k is missing"));
  EXPECT_THAT(Refused("/v", "none"), HasSubstr("v is missing or no array"));
  EXPECT_THAT(Refused("/v", Json::array()), HasSubstr("v is missing or no array of 1 to 1024"));
  EXPECT_THAT(Refused("/v", std::vector<float>(1025, 1)), HasSubstr("array of 1 to 1024"));
  EXPECT_THAT(Refused("/k/1", 0), HasSubstr("k[1] is 0"));
  EXPECT_THAT(Refused("/k/2", -1), HasSubstr("k[2] is -1"));
  EXPECT_THAT(Refused("/v/0", "1"), HasSubstr("v[0] is"));
  EXPECT_THAT(Refused("/v/0", 1e300), HasSubstr("v[0] is 1e+300"));
  EXPECT_THAT(Refused("/v/2", nullptr), HasSubstr("v[2] is missing"));
  EXPECT_THAT(Refused("/v/3", 1), HasSubstr("v has 4 numbers, and k has 3"));
  for (const char* text : {"", "[]", "{\"k\": [NaN]}", "{}"}) {
    EXPECT_FALSE(ParseKvSensitivity(text).ok()) << text;
  }
}

TEST(KvSensitivityFileTest, AFileIsLoadedForItsModelAlone) {
  TempDirectory directory;
  directory.Write("kv.json", WriteKvSensitivity(Example()));
  const std::string path = directory.path() + "/kv.json";
  const auto loaded = LoadKvSensitivity(path, kModel, 3);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, Example().sensitivity);

  const absl::Status other = LoadKvSensitivity(path, 0xfedcba9876543210, 3).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr(path));
  EXPECT_THAT(std::string(other.message()), HasSubstr("0123456789abcdef"));
  EXPECT_THAT(std::string(other.message()), HasSubstr("fedcba9876543210"));

  const absl::Status deeper = LoadKvSensitivity(path, kModel, 4).status();
  EXPECT_EQ(deeper.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(deeper.message()), HasSubstr("3 layers, and the model has 4"));
}

TEST(KvSensitivityFileTest, AnAbsentFileIsNotAMalformedOne) {
  TempDirectory directory;
  const std::string path = directory.path() + "/kv.json";
  EXPECT_EQ(LoadKvSensitivity(path, kModel, 3).status().code(), absl::StatusCode::kNotFound);
  const auto refusal = [&](const std::string& text) {
    directory.Write("kv.json", text);
    const absl::Status status = LoadKvSensitivity(path, kModel, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("{"), HasSubstr(path));
  EXPECT_THAT(refusal("{}"), HasSubstr(path + ": the field format is missing"));
  EXPECT_THAT(refusal(std::string((1 << 20) + 1, ' ')), HasSubstr(path));
}

}  // namespace
}  // namespace tandem::kv_sensitivity_file_test
