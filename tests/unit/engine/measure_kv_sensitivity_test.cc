// What rounding KV does to the sample model.
#include "engine/profile/measure_kv_sensitivity.h"

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/rounded.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"

namespace tandem::measure_kv_sensitivity_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kNumLayers = 6;  // of the sample model

ModelSource Sample() { return {.model_dir = SampleModel(), .threads = 2}; }

// The beginning of a page of this tree, which the model has not seen.
std::vector<int32_t> SomeTokens() {
  const auto tokenizer = LoadTokenizer(SampleModel());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto tokens = (*tokenizer)->Encode(ReadFile(TreePath("models/sample/README.md")), {});
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *tokens;
}

void Ignore(int64_t, int64_t) {}

TEST(MeasureKvSensitivityTest, EachLayerHasItsNumbersAndTheyAreTheSameAgain) {
  const std::vector<int32_t> tokens = SomeTokens();
  std::vector<int64_t> progress;
  const auto first = MeasureKvSensitivity(Sample(), tokens, [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 2 * kNumLayers);
    progress.push_back(done);
  });
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->k.size(), kNumLayers);
  ASSERT_EQ(first->v.size(), kNumLayers);
  for (size_t layer = 0; layer < kNumLayers; ++layer) {
    for (const float one : {first->k[layer], first->v[layer]}) {
      EXPECT_TRUE(std::isfinite(one));
      EXPECT_GT(one, 1e-6f) << "layer " << layer << " has more effect than none";
    }
    EXPECT_NE(first->k[layer], first->v[layer]) << "of layer " << layer;
  }
  EXPECT_THAT(progress, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  const auto second = MeasureKvSensitivity(Sample(), tokens, Ignore);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, *first);
}

// The KV of a layer, as the codec that is made of all layers' rounds it.
std::vector<std::byte> RoundedLayer(ScoredText& text, int32_t layer) {
  const KvLayout& layout = text.layout();
  const ExtentShape shape = {layout.dtype, layout.num_kv_heads, layout.head_dim,
                             layout.block_tokens};
  CodecCalibrator calibrator(shape, layout.num_layers);
  std::vector<std::byte> kv(text.LayerBytes());
  const auto extent = [&](size_t at) { return std::span(kv).subspan(at, shape.Bytes()); };
  for (int32_t one = 0; one < layout.num_layers; ++one) {
    EXPECT_TRUE(text.ReadLayer(one, kv).ok());
    for (size_t at = 0; at < kv.size(); at += shape.Bytes()) calibrator.Add(one, extent(at));
  }
  EXPECT_TRUE(text.ReadLayer(layer, kv).ok());
  const auto codec = NewRoundedCodec(std::make_shared<const CodecTables>(calibrator.Build()), 0.7f);
  std::vector<std::byte> frame(MostFrameBytes(shape));
  for (size_t at = 0; at < kv.size(); at += shape.Bytes()) {
    const ExtentPlace place = {.layer = layer, .exact_front = at == 0 ? 4 : 0};
    const auto size = EncodeFrame(codec.get(), shape, place, extent(at), frame);
    EXPECT_TRUE(size.ok()) << size.status();
    EXPECT_TRUE(
        DecodeFrame(codec.get(), shape, layer, std::span(frame).first(*size), extent(at)).ok());
  }
  return kv;
}

TEST(MeasureKvSensitivityTest, ANumberIsWhatRoundingThatSideOfThatLayerAloneChanges) {
  const std::vector<int32_t> tokens = SomeTokens();
  const auto measured = MeasureKvSensitivity(Sample(), tokens, Ignore);
  ASSERT_TRUE(measured.ok()) << measured.status();
  const auto text = ScoredText::Open(Sample(), tokens);
  ASSERT_TRUE(text.ok()) << text.status();
  constexpr int32_t kLast = kNumLayers - 1;  // behind all others, which are exact again by then
  ASSERT_TRUE((*text)->WriteSide(kLast, KvSide::kValues, RoundedLayer(**text, kLast)).ok());
  const auto divergence = (*text)->Divergence();
  ASSERT_TRUE(divergence.ok()) << divergence.status();
  EXPECT_FLOAT_EQ(measured->v.back(), static_cast<float>(*divergence));
}

TEST(MeasureKvSensitivityTest, RefusesTokensThatAreTooFewOrNotOfTheModel) {
  std::vector<int32_t> tokens(static_cast<size_t>(kSensitivityTokens) - 1, 7);
  const auto refusal = [&tokens] {
    const absl::Status status = MeasureKvSensitivity(Sample(), tokens, Ignore).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(), HasSubstr("639 tokens, and 640 are needed"));
  tokens.push_back(2048);
  EXPECT_THAT(refusal(), HasSubstr("token 2048 is not in the model's vocabulary of 2048"));
}

// The pool ends as it began, so that a layer's number does not depend on the layers before it.
TEST(ScoredTextTest, KvThatIsWrittenChangesPredictionsUntilItIsWrittenBack) {
  const auto text = ScoredText::Open(Sample(), SomeTokens());
  ASSERT_TRUE(text.ok()) << text.status();
  const auto divergence = [&text] {
    const auto divergence = (*text)->Divergence();
    EXPECT_TRUE(divergence.ok()) << divergence.status();
    return divergence.value_or(-1);
  };
  EXPECT_EQ(divergence(), 0);
  std::vector<std::byte> exact((*text)->LayerBytes());
  ASSERT_TRUE((*text)->ReadLayer(2, exact).ok());
  const std::vector<std::byte> zeros(exact.size());
  std::vector<double> changes;
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    ASSERT_TRUE((*text)->WriteSide(2, side, zeros).ok());
    changes.push_back(divergence());
    ASSERT_TRUE((*text)->WriteSide(2, side, exact).ok());
    EXPECT_EQ(divergence(), 0);
  }
  EXPECT_GT(changes[0], 1e-3);
  EXPECT_GT(changes[1], 1e-3);
  EXPECT_NE(changes[0], changes[1]);
}

}  // namespace
}  // namespace tandem::measure_kv_sensitivity_test
