// What ranks tokens for eviction: exact softmax weights, of each KV head by itself, whatever the
// chunks.

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/tree.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem::attention_masses_test {
namespace {

constexpr int32_t kPrompt = 100;
constexpr int32_t kWindow = 40;
constexpr float kDecay = 0.5f;

class AttentionMassesTest : public testing::Test {
 protected:
  std::vector<std::vector<float>> Masses(float decay, int32_t chunk) {
    std::vector<int32_t> ids(kPrompt);
    for (int32_t i = 0; i < kPrompt; ++i) ids[i] = (i * 37 + i * i) % model_->config().vocab_size;
    TestSequence sequence = model_->NewSequence(ids);
    return model_->MassesOf(sequence, kWindow, decay, chunk);
  }

  std::unique_ptr<ModelUnderTest> model_ =
      ModelUnderTest::Load({.directory = TreePath("tests/golden/checkpoints/llama2")});
};

// Each row's weights sum to 1, in each head.
TEST_F(AttentionMassesTest, SumUpToTheWeightsOfTheWindowsRows) {
  double rows = 0;
  for (int32_t behind = 0; behind < kWindow; ++behind) rows += std::pow(kDecay, behind / 16);
  const int32_t queries = model_->config().num_heads / model_->config().num_kv_heads;
  for (const std::vector<float>& head : Masses(kDecay, kPrompt)) {
    const double sum = std::accumulate(head.begin(), head.end(), 0.0);
    EXPECT_NEAR(sum, rows * queries, 1e-3 * sum);
  }
}

TEST_F(AttentionMassesTest, DoNotDependOnChunks) {
  const auto whole = Masses(kDecay, kPrompt);
  for (const int32_t chunk : {1, 7, 33, 64}) {
    const auto pieces = Masses(kDecay, chunk);
    for (size_t head = 0; head < whole.size(); ++head) {
      for (int32_t t = 0; t < kPrompt; ++t) {
        ASSERT_NEAR(pieces[head][t], whole[head][t], 1e-5 * (1 + whole[head][t]))
            << "chunks of " << chunk << ", KV head " << head << ", token " << t;
      }
    }
  }
}

TEST_F(AttentionMassesTest, DifferBetweenLayersAndHeads) {
  const auto masses = Masses(1, kPrompt);
  const auto heads = static_cast<size_t>(model_->config().num_kv_heads);
  ASSERT_GT(heads, 1u);
  ASSERT_GT(masses.size(), heads);
  EXPECT_NE(masses[0], masses[1]);
  EXPECT_NE(masses[0], masses[heads]);
}

}  // namespace
}  // namespace tandem::attention_masses_test
