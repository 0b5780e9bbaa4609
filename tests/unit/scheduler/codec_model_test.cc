#include "scheduler/latency_model/codec_model.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::codec_model_test {
namespace {

constexpr double kGiga = 1e9;
constexpr int64_t kBytes = 1'000'000'000;

double Milliseconds(const CodecModel& codec, double link) {
  return codec.Transfer(kBytes, link).count();
}

TEST(CodecModelTest, RawKvTakesTheTimeOfTheLink) {
  EXPECT_DOUBLE_EQ(Milliseconds({}, 2 * kGiga), 500);
}

TEST(CodecModelTest, TheSlowestOfEncodingSendingAndDecodingDecides) {
  const CodecModel codec = {
      .ratio = 1.5, .encode_bytes_per_second = 4 * kGiga, .decode_bytes_per_second = 2 * kGiga};
  EXPECT_NEAR(Milliseconds(codec, 1 * kGiga), 1000 / 1.5, 1e-6);
  EXPECT_NEAR(Milliseconds(codec, 10 * kGiga), 500, 1e-6) << "decoding";
  EXPECT_NEAR(Milliseconds({.ratio = 1.5,
                            .encode_bytes_per_second = 1 * kGiga,
                            .decode_bytes_per_second = 2 * kGiga},
                           10 * kGiga),
              1000, 1e-6)
      << "encoding";
}

TEST(CodecModelTest, TheFirstPieceIsEncodedAndTheLastDecodedByThemselves) {
  const CodecModel codec = {.ratio = 2,
                            .encode_bytes_per_second = 1 * kGiga,
                            .decode_bytes_per_second = 2 * kGiga,
                            .piece_bytes = 1'000'000};
  EXPECT_NEAR(Milliseconds(codec, 0.1 * kGiga), 5000 + 1 + 0.5, 1e-6);
  EXPECT_NEAR(codec.Transfer(1000, 0.1 * kGiga).count(), 0.005 + 0.001 + 0.0005, 1e-9)
      << "less than a piece";
}

TEST(CodecModelTest, TheFastestIsChosenForEachLink) {
  const std::vector<CodecModel> codecs = {
      {},
      {.ratio = 1.5,
       .encode_bytes_per_second = 1.4 * kGiga,
       .decode_bytes_per_second = 1.3 * kGiga},
      {.ratio = 1.4, .encode_bytes_per_second = 4 * kGiga, .decode_bytes_per_second = 4 * kGiga}};
  EXPECT_EQ(FastestCodec(codecs, 0, kBytes, 0.05 * kGiga), 1u);
  EXPECT_EQ(FastestCodec(codecs, 0, kBytes, 0.2 * kGiga), 1u);
  EXPECT_EQ(FastestCodec(codecs, 0, kBytes, 2 * kGiga), 2u);
  EXPECT_EQ(FastestCodec(codecs, 0, kBytes, 5 * kGiga), 0u);
}

TEST(CodecModelTest, WhatWasChosenStaysUnlessAnotherIsFasterByATwentieth) {
  const std::vector<CodecModel> codecs = {{}, {.ratio = 1.04}, {.ratio = 1.06}, {.ratio = 1.12}};
  const auto of_two = std::span(codecs).first(2);
  EXPECT_EQ(FastestCodec(of_two, 0, kBytes, kGiga), 0u) << "raw when the gain is under 5%";
  EXPECT_EQ(FastestCodec(std::span(codecs).first(3), 0, kBytes, kGiga), 2u);
  EXPECT_EQ(FastestCodec(of_two, 1, kBytes, kGiga), 1u);
  EXPECT_EQ(FastestCodec(codecs, 2, kBytes, kGiga), 3u);
  EXPECT_EQ(FastestCodec(codecs, 9, kBytes, kGiga), 3u) << "one that is not known";
}

}  // namespace
}  // namespace tandem::codec_model_test
