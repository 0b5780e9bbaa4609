#include "kvstore/codec/frame_decoder.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/codec/rounded.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::frame_decoder_test {
namespace {

constexpr ExtentShape kDecoderShape = {DType::kBF16, 2, 64, 16};

// Tables of other KV of the same kind for each number: a few of their channels differ.
std::shared_ptr<const CodecTables> NumberedTables(uint64_t number) {
  CodecCalibrator calibrator(kDecoderShape, 1);
  calibrator.Add(0, LikeKv(kDecoderShape, 100 + number));
  return std::make_shared<const CodecTables>(calibrator.Build());
}

std::vector<std::byte> FrameOf(CodecId id, const std::shared_ptr<const CodecTables>& tables,
                               const std::vector<std::byte>& raw) {
  std::vector<std::byte> frame(MostFrameBytes(kDecoderShape));
  const std::unique_ptr<KvCodec> codec = id == CodecId::kRaw ? nullptr : NewKvCodec(id, tables);
  frame.resize(EncodeFrame(codec.get(), kDecoderShape, {}, raw, frame).value_or(0));
  return frame;
}

TEST(FrameDecoderTest, FramesOfEachCodecAndOfAllTablesAreDecoded) {
  FrameDecoder decoder;
  const std::vector<std::byte> raw = LikeKv(kDecoderShape, 4);
  const auto one = std::make_shared<const CodecTables>(TablesFor(kDecoderShape, 1));
  const auto two = NumberedTables(40);
  ASSERT_NE(one->id(), two->id());
  decoder.AddTables(one);
  decoder.AddTables(two);
  for (const auto& tables : {one, two}) {
    for (const CodecId id : {CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice}) {
      std::vector<std::byte> back(raw.size());
      EXPECT_EQ(decoder.Decode(kDecoderShape, 0, FrameOf(id, tables, raw), back), absl::OkStatus());
      EXPECT_EQ(back, raw) << CodecName(id);
    }
  }
}

TEST(FrameDecoderTest, RoundedFramesOfKnownStepsAreDecodedWhereThatIsAllowed) {
  const auto tables = std::make_shared<const CodecTables>(TablesFor(kDecoderShape, 1));
  FrameDecoder decoder({0.1f, 0.4f});
  decoder.AddTables(tables);
  const std::vector<std::byte> raw = LikeKv(kDecoderShape, 4);
  std::vector<std::byte> back(raw.size());
  const auto code = [&](float step) {
    std::vector<std::byte> frame(MostFrameBytes(kDecoderShape));
    const auto codec = NewRoundedCodec(tables, step);
    frame.resize(EncodeFrame(codec.get(), kDecoderShape, {}, raw, frame).value_or(0));
    EXPECT_EQ(CodecOfFrame(frame)->codec, CodecId::kRounded);
    return decoder.Decode(kDecoderShape, 0, frame, back).code();
  };
  EXPECT_EQ(code(0.4f), absl::StatusCode::kFailedPrecondition);
  decoder.ReadRounded();
  EXPECT_EQ(code(0.4f), absl::StatusCode::kOk);
  EXPECT_EQ(code(0.1f), absl::StatusCode::kOk);
  EXPECT_EQ(code(0.2f), absl::StatusCode::kFailedPrecondition) << "a step that is not known";
}

// A sender brought tables for lossless codecs first, and later, for another class, the whole ones.
TEST(FrameDecoderTest, TablesForRoundingAreAddedToThoseForLosslessCodecs) {
  const CodecTables whole = TablesFor(kDecoderShape, 1);
  const auto lossless = std::make_shared<const CodecTables>(
      *CodecTables::Parse(whole.Serialize(CodecTables::Use::kLossless), kDecoderShape, 1));
  FrameDecoder decoder({0.1f});
  decoder.ReadRounded();
  decoder.AddTables(lossless);
  EXPECT_EQ(decoder.table_ids(), std::vector{whole.id()});
  decoder.AddTables(std::make_shared<const CodecTables>(whole));
  decoder.AddTables(lossless);
  EXPECT_EQ(decoder.table_ids(), (std::vector{whole.id(), whole.id(), whole.rounding_id()}));
  const std::vector<std::byte> raw = LikeKv(kDecoderShape, 4);
  std::vector<std::byte> back(raw.size());
  std::vector<std::byte> frame(MostFrameBytes(kDecoderShape));
  const auto codec = NewRoundedCodec(std::make_shared<const CodecTables>(whole), 0.1f);
  frame.resize(EncodeFrame(codec.get(), kDecoderShape, {}, raw, frame).value_or(0));
  EXPECT_EQ(decoder.Decode(kDecoderShape, 0, frame, back), absl::OkStatus());
  EXPECT_EQ(decoder.Decode(kDecoderShape, 0, FrameOf(CodecId::kF3, lossless, raw), back),
            absl::OkStatus());
}

TEST(FrameDecoderTest, AFrameOfUnknownTablesIsRefused) {
  FrameDecoder decoder;
  decoder.AddTables(NumberedTables(40));
  const std::vector<std::byte> raw = LikeKv(kDecoderShape, 4);
  const auto tables = std::make_shared<const CodecTables>(TablesFor(kDecoderShape, 1));
  std::vector<std::byte> back(raw.size());
  const auto frame = FrameOf(CodecId::kMaskRice, tables, raw);
  EXPECT_EQ(CodecOfFrame(frame)->codec, CodecId::kMaskRice);
  EXPECT_EQ(decoder.Decode(kDecoderShape, 0, frame, back).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(FrameDecoderTest, TheLatestTablesAreKeptAndACopyKeepsItsOwn) {
  FrameDecoder decoder;
  std::vector<std::shared_ptr<const CodecTables>> all;
  for (uint64_t i = 0; i < 9; ++i) all.push_back(NumberedTables(i));
  for (size_t i = 0; i < 8; ++i) decoder.AddTables(all[i]);
  const FrameDecoder copy = decoder;
  decoder.AddTables(all[7]);  // known, so nothing is dropped
  EXPECT_EQ(decoder.table_ids(), copy.table_ids());
  decoder.AddTables(all[8]);
  EXPECT_EQ(decoder.table_ids().size(), 2 * FrameDecoder::kMostTables) << "each has two ids";
  const std::vector<std::byte> raw = LikeKv(kDecoderShape, 4);
  const auto frame = FrameOf(CodecId::kF3, all[0], raw);
  ASSERT_EQ(CodecOfFrame(frame)->codec, CodecId::kF3);
  std::vector<std::byte> back(raw.size());
  EXPECT_EQ(decoder.Decode(kDecoderShape, 0, frame, back).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(copy.Decode(kDecoderShape, 0, frame, back), absl::OkStatus());
}

}  // namespace
}  // namespace tandem::frame_decoder_test
