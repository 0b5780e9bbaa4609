#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

namespace tandem::ops_sample_test {
namespace {

class SampleTest : public OpsTest {
 protected:
  std::vector<SampledToken> Sample(const std::vector<float>& logits, std::vector<SampleRow> rows) {
    std::vector<SampledToken> out(rows.size());
    const absl::Status status = Run(logits, rows, out);
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }

  absl::Status Run(const std::vector<float>& logits, const std::vector<SampleRow>& rows,
                   std::span<SampledToken> out) {
    const auto num_rows = static_cast<int64_t>(rows.size());
    const DeviceArray device = ToDevice(logits);
    const int64_t vocab = static_cast<int64_t>(logits.size()) / num_rows;
    return ops().Sample(stream(), {Tensor(device, {num_rows, vocab}), rows, out});
  }

  // The ids drawn at the positions [0, count).
  std::vector<int32_t> Draw(const std::vector<float>& logits, SampleRow row, int64_t count) {
    std::vector<float> all;
    std::vector<SampleRow> rows;
    for (row.position = 0; row.position < count; ++row.position) {
      all.insert(all.end(), logits.begin(), logits.end());
      rows.push_back(row);
    }
    std::vector<int32_t> ids;
    for (const SampledToken& token : Sample(all, rows)) ids.push_back(token.token_id);
    return ids;
  }

  // Each draw equals the inverse of the reference's distribution, unless the uniform number lies
  // within rounding of a boundary.
  void ExpectDrawsFollowReference(const std::vector<float>& logits, const SampleRow& row,
                                  int64_t count) {
    const std::vector<double> distribution = reference::SampleDistribution(logits, row);
    const std::vector<int32_t> ids = Draw(logits, row, count);
    for (int64_t position = 0; position < count; ++position) {
      const double uniform = UniformAt(row.seed, static_cast<uint64_t>(position));
      const auto id = static_cast<size_t>(ids[static_cast<size_t>(position)]);
      const double low = std::accumulate(distribution.begin(),
                                         distribution.begin() + static_cast<int64_t>(id), 0.0);
      ASSERT_GT(distribution[id], 0) << "token " << id << " was filtered out";
      ASSERT_GT(uniform, low - 1e-5) << "position " << position;
      ASSERT_LT(uniform, low + distribution[id] + 1e-5) << "position " << position;
    }
  }
};

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

TEST_P(SampleTest, LogprobsAreOfTheUnmodifiedDistribution) {
  const std::vector<float> logits = Random(5000, 3.0f);
  const std::vector<double> expected = reference::Logprobs(logits);
  const std::vector<int32_t> seen = {1, 2, 3};
  const SampledToken token = Sample(logits, {{.temperature = 0.7f,
                                              .top_k = 40,
                                              .repetition_penalty = 1.3f,
                                              .seed = 5,
                                              .num_logprobs = 20,
                                              .prompt_ids = seen}})[0];
  EXPECT_NEAR(token.logprob, expected[static_cast<size_t>(token.token_id)], 1e-5);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  ASSERT_EQ(token.top.size(), 20);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(token.top[i].token_id, order[i]);
    EXPECT_NEAR(token.top[i].logprob, expected[static_cast<size_t>(order[i])], 1e-5);
  }
  EXPECT_TRUE(Sample(logits, {{.num_logprobs = 0}})[0].top.empty());
}

// Every token is penalized here, so the one that is drawn is, too.
TEST_P(SampleTest, TheLogprobOfAPenalizedTokenIsThatOfItsUnmodifiedLogit) {
  const std::vector<float> logits = Random(500, 3.0f);
  const std::vector<double> expected = reference::Logprobs(logits);
  std::vector<int32_t> seen(logits.size());
  std::iota(seen.begin(), seen.end(), 0);
  const SampledToken token = Sample(logits, {{.repetition_penalty = 1.3f,
                                              .presence_penalty = 0.5f,
                                              .num_logprobs = 0,
                                              .output_ids = seen}})[0];
  EXPECT_NEAR(token.logprob, expected[static_cast<size_t>(token.token_id)], 1e-5);
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

TEST_P(SampleTest, PenaltiesFollowTheReference) {
  const std::vector<float> logits = Random(50, 2.0f);
  const std::vector<int32_t> prompt = {3, 4, 5, 3};
  const std::vector<int32_t> output = {5, 6, 6, 6, 7};
  SampleRow row = {
      .temperature = 1, .num_logprobs = -1, .prompt_ids = prompt, .output_ids = output};
  row.repetition_penalty = 1.8f;
  ExpectDrawsFollowReference(logits, row, Size(300, 60));
  row.frequency_penalty = 0.7f;
  row.presence_penalty = -0.4f;
  ExpectDrawsFollowReference(logits, row, Size(300, 60));
  row.top_k = 9;
  ExpectDrawsFollowReference(logits, row, Size(300, 60));

  // Greedy: the penalty moves the choice exactly when it should.
  std::vector<float> two = {2.0f, 1.5f};
  const std::vector<int32_t> first = {0};
  EXPECT_EQ(Sample(two, {{.presence_penalty = 0.4f, .output_ids = first}})[0].token_id, 0);
  EXPECT_EQ(Sample(two, {{.presence_penalty = 0.6f, .output_ids = first}})[0].token_id, 1);
  EXPECT_EQ(Sample(two, {{.presence_penalty = 0.6f, .prompt_ids = first}})[0].token_id, 0);
  EXPECT_EQ(Sample(two, {{.repetition_penalty = 1.4f, .prompt_ids = first}})[0].token_id, 1);
}

TEST_P(SampleTest, BiasesAndExclusionsFollowTheReference) {
  const std::vector<float> logits = Random(50, 2.0f);
  const std::vector<TokenBias> biases = {{0, 3.5f}, {7, -100.0f}, {49, 1.25f}, {30, 0.5f}};
  const std::vector<int32_t> excluded = {0, 12, 12, 48};
  const std::vector<int32_t> allowed = {49, 0, 7, 30, 31, 32, 12};
  const std::vector<int32_t> output = {30, 30, 12, 5};
  SampleRow row = {.temperature = 1, .num_logprobs = -1, .biases = biases};
  ExpectDrawsFollowReference(logits, row, Size(300, 60));
  row.excluded_ids = excluded;
  ExpectDrawsFollowReference(logits, row, Size(300, 60));
  row.allowed_ids = allowed;
  ExpectDrawsFollowReference(logits, row, Size(300, 60));
  row.repetition_penalty = 1.5f;
  row.frequency_penalty = 0.5f;
  row.prompt_ids = allowed;
  row.output_ids = output;
  ExpectDrawsFollowReference(logits, row, Size(300, 60));
  // More are kept than are allowed.
  row.top_k = 20;
  row.top_p = 0.99f;
  ExpectDrawsFollowReference(logits, row, Size(300, 60));
  row.biases = {};
  row.temperature = 0;
  ExpectDrawsFollowReference(logits, row, 2);
}

TEST_P(SampleTest, LongListsOfBiasesAndAllowedTokensFollowTheReference) {
  const std::vector<float> logits = Random(9001, 2.0f);
  std::vector<TokenBias> biases;
  std::vector<int32_t> allowed;
  for (int32_t i = 0; i < static_cast<int32_t>(kMaxLogitBiases); ++i) {
    biases.push_back({8 * i, static_cast<float>(i % 7) - 3});
  }
  for (int32_t id = 9000; id >= 0; id -= 2) allowed.push_back(id);
  ExpectDrawsFollowReference(logits,
                             {.temperature = 1,
                              .top_p = 0.9f,
                              .num_logprobs = -1,
                              .biases = biases,
                              .allowed_ids = allowed},
                             Size(40, 8));
}

// The next row and the next call find the logits and the workspace as if there had been no biases.
TEST_P(SampleTest, ExclusionsAndBiasesStayWithTheirRow) {
  constexpr int64_t kVocab = 33;
  constexpr size_t kRows = 300;
  const std::vector<float> logits = Random(kVocab);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  std::vector<float> all;
  for (size_t i = 0; i < kRows; ++i) all.insert(all.end(), logits.begin(), logits.end());
  std::vector<std::vector<int32_t>> allowed(kRows);
  std::vector<std::vector<TokenBias>> biases(kRows);
  std::vector<SampleRow> rows(kRows, {.num_logprobs = -1});
  for (size_t i = 0; i < kRows; ++i) {
    const auto id = static_cast<int32_t>(i % kVocab);
    if (i % 3 == 0) rows[i].allowed_ids = allowed[i] = {id};
    if (i % 3 == 1) rows[i].biases = biases[i] = {{id, 100.0f}};
  }
  for (int call = 0; call < 2; ++call) {
    const std::vector<SampledToken> tokens = Sample(all, rows);
    for (size_t i = 0; i < kRows; ++i) {
      EXPECT_EQ(tokens[i].token_id, i % 3 == 2 ? best : static_cast<int64_t>(i % kVocab)) << i;
    }
  }
}

TEST_P(SampleTest, LogprobsAreOfTheDistributionBeforeBiasesAndExclusions) {
  const std::vector<float> logits = Random(700, 3.0f);
  const std::vector<double> expected = reference::Logprobs(logits);
  const auto best =
      static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<int32_t> excluded = {best};
  const std::vector<TokenBias> biases = {{123, 90.0f}, {best, -90.0f}, {4, -3.0f}};
  const SampledToken token =
      Sample(logits, {{.num_logprobs = 4, .biases = biases, .excluded_ids = excluded}})[0];
  EXPECT_EQ(token.token_id, 123);
  EXPECT_NEAR(token.logprob, expected[123], 1e-5);
  ASSERT_EQ(token.top.size(), 4);
  EXPECT_EQ(token.top[0].token_id, best);
  EXPECT_NEAR(token.top[0].logprob, expected[static_cast<size_t>(best)], 1e-5);
}

TEST_P(SampleTest, AGivenTokenIsReportedWhateverItsLogit) {
  const std::vector<float> logits = Random(700, 3.0f);
  const std::vector<double> expected = reference::Logprobs(logits);
  for (const int32_t given : {0, 17, 699}) {
    const SampledToken token =
        Sample(logits, {{.temperature = 1, .num_logprobs = 2, .given_token = given}})[0];
    EXPECT_EQ(token.token_id, given);
    EXPECT_NEAR(token.logprob, expected[static_cast<size_t>(given)], 1e-5);
    EXPECT_EQ(token.top.size(), 2);
  }
}

TEST_P(SampleTest, ARowThatExcludesEveryTokenIsRefused) {
  const std::vector<float> logits = Random(60);
  const std::vector<int32_t> two = {3, 8};
  const std::vector<int32_t> more = {8, 3, 5};
  std::vector<SampledToken> out(2);
  for (const float temperature : {0.0f, 1.0f}) {
    const std::vector<SampleRow> rows = {
        {}, {.temperature = temperature, .excluded_ids = more, .allowed_ids = two}};
    const absl::Status status = Run(logits, rows, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.ToString().find("row 1"), std::string::npos) << status;
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

TEST_P(SampleTest, AlternativesAreInOrderHoweverMany) {
  std::vector<float> logits = Random(5003, 2.0f);
  for (float& logit : logits) logit = std::round(logit);  // hundreds of each
  logits[7] = -300;
  logits[9] = 0.0f;
  logits[8] = -0.0f;
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const std::vector<double> expected = reference::Logprobs(logits);
  for (int32_t count : {1, 3, 1200, 5002, 5003}) {
    const SampledToken token = Sample(logits, {{.num_logprobs = count}})[0];
    ASSERT_EQ(token.top.size(), static_cast<size_t>(count));
    for (size_t i = 0; i < token.top.size(); ++i) {
      ASSERT_EQ(token.top[i].token_id, order[i]) << "of " << count << ", at " << i;
      ASSERT_NEAR(token.top[i].logprob, expected[static_cast<size_t>(order[i])], 1e-4);
    }
  }
}

// Penalties of one row are neither another row's nor the next call's.
TEST_P(SampleTest, PenaltiesStayWithTheirRow) {
  constexpr size_t kVocab = 33;
  constexpr size_t kRows = 300;
  const std::vector<float> logits = Random(kVocab, 0.1f);
  std::vector<float> all;
  std::vector<std::vector<int32_t>> ids(kRows);
  std::vector<SampleRow> rows(kRows, {.presence_penalty = 5, .num_logprobs = -1});
  for (size_t i = 0; i < kRows; ++i) {
    all.insert(all.end(), logits.begin(), logits.end());
    for (size_t id = 0; id < kVocab; ++id) {
      if (id != i % kVocab) ids[i].push_back(static_cast<int32_t>(id));
    }
    rows[i].output_ids = ids[i];
  }
  for (int call = 0; call < 2; ++call) {
    const std::vector<SampledToken> tokens = Sample(all, rows);
    for (size_t i = 0; i < kRows; ++i) EXPECT_EQ(tokens[i].token_id, i % kVocab);
  }
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  for (const SampledToken& token : Sample(all, std::vector<SampleRow>(kRows))) {
    EXPECT_EQ(token.token_id, best);
  }
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
