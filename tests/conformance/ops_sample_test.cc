#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/rng.h"
#include "tests/conformance/sample_fixture.h"

// Which token is drawn: greedily, by temperature and after the filters.

namespace tandem::ops_sample_test {
namespace {

TEST_P(SampleTest, GreedyTakesTheLowestIdOfTheMaximum) {
  for (size_t vocab : {1, 2, 15, 16, 17, 1000, 32003}) {
    std::vector<float> logits = Random(static_cast<int64_t>(vocab));
    const size_t best = vocab * 2 / 3;
    logits[best] = 50;
    if (best + 1 < vocab) logits[vocab - 1] = 50;
    EXPECT_EQ(Sample(logits, {{.num_logprobs = -1}})[0].token_id, best);
  }
  EXPECT_EQ(Sample(std::vector<float>(40, -3.0f), {{}})[0].token_id, 0);
}

TEST_P(SampleTest, NotFiniteLogitsAreAnErrorThatNamesTheRow) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    for (size_t at : {0, 37, 99}) {
      std::vector<float> logits = Random(300);
      logits[200 + at] = bad;
      std::vector<SampledToken> out(3);
      const absl::Status status = Run(logits, std::vector<SampleRow>(3), out);
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_NE(status.ToString().find("row 2"), std::string::npos) << status;
    }
  }
}

// Chi-square over many positions: 11 degrees of freedom exceed 37.4 once in 10,000 right samplers,
// and the seed is fixed.
TEST_P(SampleTest, FrequenciesFollowTheTemperature) {
  const std::vector<float> logits = Random(12);
  const int64_t draws = Size(20000, 1000);
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    const SampleRow row = {.temperature = temperature, .seed = 7, .num_logprobs = -1};
    std::vector<double> counts(12);
    for (int32_t id : Draw(logits, row, draws)) ++counts[static_cast<size_t>(id)];
    const std::vector<double> expected = reference::SampleDistribution(logits, row);
    double chi_square = 0;
    for (size_t i = 0; i < 12; ++i) {
      const double wanted = static_cast<double>(draws) * expected[i];
      chi_square += std::pow(counts[i] - wanted, 2) / wanted;
    }
    EXPECT_LT(chi_square, 37.4) << temperature;
  }
}

TEST_P(SampleTest, FiltersKeepExactlyTheReferencesTokens) {
  const std::vector<SampleRow> filters = {
      {.top_k = 1},
      {.top_k = 7},
      {.top_k = 999},
      {.top_k = 5000},
      {.top_p = 0.01f},
      {.top_p = 0.5f},
      {.top_p = 0.9f},
      {.top_p = 0.999f},
      {.min_p = 0.1f},
      {.min_p = 0.9f},
      {.top_k = 50, .top_p = 0.9f},
      {.top_k = 200, .top_p = 0.7f, .min_p = 0.05f},
  };
  for (int64_t vocab : {10, 3000}) {
    const std::vector<float> logits = Random(vocab, 2.0f);
    for (SampleRow row : filters) {
      row.seed = 11;
      row.num_logprobs = -1;
      for (float temperature : {0.05f, 0.8f, 5.0f}) {
        row.temperature = temperature;
        ExpectDrawsFollowReference(logits, row, Size(60, 12));
      }
    }
  }
}

TEST_P(SampleTest, EqualLogitsAreCutByRisingId) {
  const std::vector<float> logits(500, 1.0f);
  for (int32_t id : Draw(logits, {.temperature = 1, .top_k = 3, .num_logprobs = -1}, 100)) {
    EXPECT_LT(id, 3);
  }
  ExpectDrawsFollowReference(logits, {.temperature = 1, .top_p = 0.101f, .num_logprobs = -1}, 200);
}

// The second token's weight is 1 - 2^-24, which is min_p exactly. Only what is below that is
// dropped.
TEST_P(SampleTest, ATokenOfExactlyMinPIsKept) {
  const std::vector<float> logits = {0.0f, -0x1p-24f, -1.0f};
  std::set<int32_t> drawn;
  const SampleRow row = {.temperature = 1, .min_p = 1.0f - 0x1p-24f, .num_logprobs = -1};
  for (int32_t id : Draw(logits, row, 60)) drawn.insert(id);
  EXPECT_EQ(drawn, (std::set<int32_t>{0, 1}));
}

// The uniform number of this position times 19,857 is exactly 18,679, so the draw falls on the
// boundary behind the first 18,679 tokens of equal weight. What follows there is filtered out.
TEST_P(SampleTest, ADrawOnABoundaryTakesNoTokenThatIsFilteredOut) {
  constexpr int64_t kPosition = 59'039'572;
  constexpr size_t kBefore = 18'679;
  constexpr size_t kBehind = 19'857 - kBefore;
  ASSERT_EQ(UniformAt(0, kPosition) * (kBefore + kBehind), kBefore);
  for (const size_t filtered : {size_t{1}, size_t{1000}}) {
    std::vector<float> logits(kBefore + filtered + kBehind, 2.0f);
    std::fill_n(logits.begin() + kBefore, filtered, -2.0f);
    const SampleRow row = {
        .temperature = 1, .min_p = 0.5f, .position = kPosition, .num_logprobs = -1};
    EXPECT_EQ(static_cast<size_t>(Sample(logits, {row})[0].token_id), kBefore + filtered);
  }
}

TEST_P(SampleTest, TopKOfOneIsGreedyAtAnyTemperature) {
  std::vector<float> logits(1000, 1.0f);
  logits[600] = std::nextafter(1.0f, 2.0f);
  for (float temperature : {1e-6f, 1.0f, 1e6f}) {
    EXPECT_EQ(Sample(logits, {{.temperature = temperature, .top_k = 1}})[0].token_id, 600);
  }
}

TEST_P(SampleTest, LongVocabulariesFollowTheReference) {
  const std::vector<float> logits = Random(Size(40001, 9001), 3.0f);
  ExpectDrawsFollowReference(logits, {.temperature = 1, .seed = 3, .num_logprobs = -1}, 12);
  ExpectDrawsFollowReference(logits, {.temperature = 2, .top_p = 0.95f, .num_logprobs = -1}, 12);
  ExpectDrawsFollowReference(logits, {.temperature = 0.05f, .top_k = 2000, .num_logprobs = -1}, 12);
}

// Where a cut goes through thousands of tokens of nearly one score, or of one.
TEST_P(SampleTest, CutsThroughCrowdsOfTokens) {
  constexpr size_t kVocab = 30011;
  std::vector<float> logits(kVocab, -2.5f);
  logits[20000] = -2.0f;
  ExpectDrawsFollowReference(logits,
                             {.temperature = 1, .top_k = 12345, .seed = 1, .num_logprobs = -1}, 8);
  ExpectDrawsFollowReference(
      logits, {.temperature = 0.7f, .top_p = 0.4f, .seed = 2, .num_logprobs = -1}, 8);
  for (size_t i = 0; i < kVocab; ++i) logits[i] = static_cast<float>(i % 5) - 2.0f;
  ExpectDrawsFollowReference(
      logits, {.temperature = 3, .top_k = 10000, .top_p = 0.8f, .seed = 3, .num_logprobs = -1}, 8);
  const std::vector<float> random = Random(kVocab, 2.0f);
  for (float temperature : {100.0f, 1e30f}) {
    ExpectDrawsFollowReference(
        random, {.temperature = temperature, .top_p = 0.3f, .seed = 4, .num_logprobs = -1}, 8);
  }
  // All but a few are so far below that their weights vanish.
  ExpectDrawsFollowReference(
      random, {.temperature = 0.01f, .top_k = 5000, .top_p = 0.99f, .num_logprobs = -1}, 8);
}

// P2: the choice is a function of the row, its seed and its position.
TEST_P(SampleTest, NeighboursAndThreadsChangeNothing) {
  constexpr size_t kVocab = 777;
  const std::vector<float> logits = Random(9 * kVocab, 2.0f);
  std::vector<SampleRow> rows(9);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {.temperature = static_cast<float>(i % 3),
               .top_p = i % 2 == 0 ? 1.0f : 0.8f,
               .seed = 40 + i,
               .position = static_cast<int64_t>(i),
               .num_logprobs = 3};
  }
  const std::vector<SampledToken> together = Sample(logits, rows);
  for (int num_threads : ThreadCounts()) {
    UseThreads(num_threads);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::vector<float> row(logits.begin() + i * kVocab, logits.begin() + (i + 1) * kVocab);
      const SampledToken alone = Sample(row, {rows[i]})[0];
      EXPECT_EQ(alone.token_id, together[i].token_id);
      EXPECT_EQ(alone.logprob, together[i].logprob);
      EXPECT_EQ(alone.top[2].token_id, together[i].top[2].token_id);
    }
  }
}

TANDEM_INSTANTIATE_OPS_TEST(SampleTest);

}  // namespace
}  // namespace tandem::ops_sample_test
