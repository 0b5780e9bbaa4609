#include <algorithm>
#include <string>

#include "tests/conformance/sample_fixture.h"

// What changes logits before a token is drawn: penalties, biases, and tokens that are excluded or
// alone allowed.

namespace tandem::ops_sample_modifiers_test {
namespace {

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

}  // namespace
}  // namespace tandem::ops_sample_modifiers_test
