#include "base/kv_shape.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::kv_shape_test {
namespace {

using ::testing::HasSubstr;

constexpr KvShape kOurs = {.num_layers = 4, .num_kv_heads = 2, .head_dim = 64, .dtype = "bf16"};

KvShape Of(std::string_view dtype) {
  KvShape shape = kOurs;
  shape.dtype = dtype;
  return shape;
}

TEST(KvShapeTest, ARefusalNamesBothValuesOfTheFirstFieldThatDiffers) {
  EXPECT_EQ(CanConvert(kOurs, kOurs), absl::OkStatus());
  const auto refused = [](auto change, const char* first, const char* second) {
    KvShape theirs = kOurs;
    change(theirs);
    const absl::Status status = CanConvert(theirs, kOurs);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(first));
    EXPECT_THAT(std::string(status.message()), HasSubstr(second));
  };
  refused([](KvShape& s) { s.num_layers = 3; }, "num_layers=3", "num_layers=4");
  refused([](KvShape& s) { s.num_kv_heads = 4; }, "num_kv_heads=4", "num_kv_heads=2");
  refused([](KvShape& s) { s.head_dim = 16; }, "head_dim=16", "head_dim=64");
  refused([](KvShape& s) { s.dtype = "f16"; }, "dtype=f16", "dtype=bf16");
  refused([](KvShape& s) { s.dtype = "f32"; }, "dtype=f32", "dtype=bf16");
}

TEST(KvShapeTest, ATypeIsOnlyReplacedByOneThatHoldsAllItsValuesOrRoundsThem) {
  const std::vector<std::string> types = {"f32", "f16", "bf16", "f8e4m3", "k8v8", "k4v3"};
  std::vector<std::string> possible;
  for (const std::string& from : types) {
    for (const std::string& to : types) {
      if (from != to && CanConvert(Of(from), Of(to)).ok()) possible.push_back(from + "-" + to);
    }
    EXPECT_TRUE(CanConvert(Of(from), Of(from)).ok()) << from;
  }
  EXPECT_THAT(possible,
              testing::UnorderedElementsAre("f16-f32", "bf16-f32", "f8e4m3-f32", "f8e4m3-f16",
                                            "f8e4m3-bf16", "f32-k8v8", "f16-k8v8", "bf16-k8v8",
                                            "f32-k4v3", "f16-k4v3", "bf16-k4v3"));
}

TEST(KvShapeTest, OnlyFloatsAreAdvisedToBecomeF32) {
  const auto message = [](std::string_view from) {
    return std::string(CanConvert(Of(from), Of("f16")).message());
  };
  EXPECT_THAT(message("bf16"), HasSubstr("or the decode worker f32"));
  EXPECT_THAT(message("k4v3"), testing::EndsWith("give both workers the same --kv-dtype"));
}

TEST(KvShapeTest, ATypeThatThisBuildDoesNotKnowOnlyGoesWithItself) {
  EXPECT_TRUE(CanConvert(Of("f4"), Of("f4")).ok());
  EXPECT_FALSE(CanConvert(Of("f4"), Of("f32")).ok());
  EXPECT_FALSE(CanConvert(Of("bf16"), Of("f64")).ok());
}

}  // namespace
}  // namespace tandem::kv_shape_test
