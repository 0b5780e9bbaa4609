// What rounding KV does to the sample model.
#include "engine/profile/measure_kv_sensitivity.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

TEST(MeasureKvSensitivityTest, RefusesTokensThatAreTooFewOrNotOfTheModel) {
  std::vector<int32_t> tokens(static_cast<size_t>(kSensitivityTokens) - 1, 7);
  const auto refusal = [&tokens] {
    const absl::Status status = MeasureKvSensitivity(Sample(), tokens, Ignore).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(), HasSubstr("511 tokens, and 512 are needed"));
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
