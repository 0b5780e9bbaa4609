#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/conformance/sample_fixture.h"

// The log-probabilities that come with a token: of the distribution that the logits say, whatever
// penalties, filters and biases choose.

namespace tandem::ops_sample_logprobs_test {
namespace {

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

}  // namespace
}  // namespace tandem::ops_sample_logprobs_test
