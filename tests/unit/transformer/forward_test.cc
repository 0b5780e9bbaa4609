#include "model/transformer/forward.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/tree.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem::forward_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One sequence of five tokens, to be changed by the tests.
class ForwardTest : public testing::Test {
 protected:
  ForwardTest()
      : model_(ModelUnderTest::Load(
            {.directory = TreePath("tests/golden/checkpoints/sharded"), .max_tokens = 32})),
        sequence_(model_->NewSequence({5, 6, 7, 8, 9})) {
    for (int64_t i = 0; i < 5; ++i) {
      slots_.push_back(sequence_.blocks[0] * ModelUnderTest::kBlockTokens + i);
    }
    batch_ = {.token_ids = sequence_.ids,
              .positions = positions_,
              .slots = slots_,
              .query_starts = starts_,
              .context_lens = lens_,
              .block_tables = TablesOf(sequence_),
              .logit_rows = logit_rows_};
  }

  BlockTables TablesOf(const TestSequence& sequence) {
    table_starts_ = {0, static_cast<int32_t>(sequence.blocks.size())};
    return {.ids = sequence.blocks, .starts = table_starts_};
  }

  std::vector<float> Row(const TensorView& logits, int64_t row) const {
    return model_->Row(logits, row);
  }

  std::unique_ptr<ModelUnderTest> model_;
  TestSequence sequence_;
  std::vector<int32_t> table_starts_;
  std::vector<int32_t> positions_ = {0, 1, 2, 3, 4};
  std::vector<int64_t> slots_;
  std::vector<int32_t> starts_ = {0, 5};
  std::vector<int32_t> lens_ = {5};
  std::vector<int32_t> logit_rows_ = {4};
  ForwardBatch batch_;
};

TEST_F(ForwardTest, SaysWhichLayersAreStoredAndOnlyThen) {
  const size_t extent = static_cast<size_t>(model_->pool().ExtentBytes());
  std::vector<int32_t> layers;
  const auto logits = model_->Forward(batch_, [&](int32_t layer) {
    layers.push_back(layer);
    const std::vector<std::byte> poison(extent, std::byte{0xff});
    const auto untouched = [&](int32_t of) {
      return model_->ExtentOf(of, sequence_.blocks[0]) == poison;
    };
    EXPECT_FALSE(untouched(layer));
    if (layer + 1 < model_->config().num_layers) {
      EXPECT_TRUE(untouched(layer + 1));
    }
  });
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_THAT(layers, ElementsAre(0, 1, 2));
}

TEST_F(ForwardTest, GivesTheLogitsOfTheRowsAskedFor) {
  const std::vector<int32_t> all = {0, 1, 2, 3, 4};
  batch_.logit_rows = all;
  const auto full = model_->Forward(batch_, nullptr);
  ASSERT_TRUE(full.ok()) << full.status();
  ASSERT_EQ(full->rows(), 5);
  const std::vector<std::vector<float>> rows = {Row(*full, 1), Row(*full, 3)};
  const std::vector<int32_t> some = {1, 3};
  batch_.logit_rows = some;
  const auto part = model_->Forward(batch_, nullptr);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->rows(), 2);
  EXPECT_EQ(Row(*part, 0), rows[0]);
  EXPECT_EQ(Row(*part, 1), rows[1]);
}

TEST_F(ForwardTest, WithoutLogitsTheSameKvIsStored) {
  ASSERT_TRUE(model_->Forward(batch_, nullptr).ok());
  std::vector<std::vector<std::byte>> expected;
  for (int32_t layer = 0; layer < 3; ++layer) {
    expected.push_back(model_->KvOf(sequence_, layer, 5));
  }
  TestSequence other = model_->NewSequence(sequence_.ids);
  for (int64_t i = 0; i < 5; ++i) {
    slots_[i] = other.blocks[0] * ModelUnderTest::kBlockTokens + i;
  }
  batch_.block_tables = TablesOf(other);
  batch_.logit_rows = {};
  const auto none = model_->Forward(batch_, nullptr);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->rows(), 0);
  for (int32_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(model_->KvOf(other, layer, 5), expected[layer]) << "layer " << layer;
  }
}

TEST_F(ForwardTest, RefusesBatchesThatDoNotFit) {
  const auto refusal = [&](const ForwardBatch& batch) {
    return std::string(model_->Forward(batch, nullptr).status().message());
  };
  ForwardBatch batch = batch_;
  batch.token_ids = {};
  EXPECT_THAT(refusal(batch), HasSubstr("a step of 0 tokens"));
  const std::vector<int32_t> many(33, 1);
  batch.token_ids = many;
  EXPECT_THAT(refusal(batch), HasSubstr("a step of 33 tokens"));
  batch = batch_;
  const std::vector<int32_t> falling = {3, 2};
  batch.logit_rows = falling;
  EXPECT_THAT(refusal(batch), HasSubstr("logit_rows[1] is 2"));
  const std::vector<int32_t> beyond = {5};
  batch.logit_rows = beyond;
  EXPECT_THAT(refusal(batch), HasSubstr("logit_rows[0] is 5"));
  batch = batch_;
  batch.num_decodes = 1;
  EXPECT_THAT(refusal(batch), HasSubstr("do not fit together"));
  batch = batch_;
  const std::vector<int32_t> outside = {5, 6, 7, 8, model_->config().vocab_size};
  batch.token_ids = outside;
  EXPECT_EQ(model_->Forward(batch, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(model_->Forward(batch_, nullptr).ok());
}

}  // namespace
}  // namespace tandem::forward_test
