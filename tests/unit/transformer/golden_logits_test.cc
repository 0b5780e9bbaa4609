// Our forward pass against transformers in float32 (tests/golden/README.md): the logits after the
// prompt, then 64 greedy tokens, one decode step each.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem::golden_logits_test {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-3;
constexpr size_t kGreedyTokens = 64;

class GoldenLogitsTest : public testing::TestWithParam<const char*> {};

void ExpectClose(const std::vector<float>& logits, const std::vector<double>& expected) {
  ASSERT_EQ(logits.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::isfinite(logits[i])) << "logit " << i;
    worst = std::max(worst, std::abs(logits[i] - expected[i]));
  }
  EXPECT_LE(worst, kTolerance);
  testing::Test::RecordProperty("max_abs_error", std::to_string(worst));
}

TEST_P(GoldenLogitsTest, EqualsTransformers) {
  const Json golden = ParseJson(ReadFile(TreePath("tests/golden/logits/") + GetParam() + ".json"));
  ASSERT_TRUE(golden.is_object() && !golden["cases"].empty());
  const auto model = ModelUnderTest::Load(
      {.directory = TreePath(golden["checkpoint"].get<std::string>()), .num_threads = 2});

  for (const Json& c : golden["cases"]) {
    TestSequence sequence = model->NewSequence(c["prompt_ids"].get<std::vector<int32_t>>());
    SCOPED_TRACE("prompt of " + std::to_string(sequence.ids.size()) + " tokens");
    const auto expected_ids = c["greedy_ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(expected_ids.size(), kGreedyTokens);
    std::vector<float> logits = model->Prefill(sequence, static_cast<int32_t>(sequence.ids.size()));
    ExpectClose(logits, c["last_logits"].get<std::vector<double>>());
    std::vector<int32_t> ids = {ArgMax(logits)};
    while (ids.size() < kGreedyTokens) {
      logits = model->DecodeGreedily(sequence, logits);
      ids.push_back(ArgMax(logits));
    }
    EXPECT_EQ(ids, expected_ids);
  }
}

// Each token of a text after those before it.
struct Reading {
  double loss = 0;               // ln(perplexity) of all tokens but the first
  std::vector<int32_t> choices;  // the most probable ones in their places
};

Reading Read(ModelUnderTest& model, const std::vector<int32_t>& ids) {
  TestSequence sequence = model.NewSequence(ids);
  Reading reading;
  for (size_t i = 1; i < ids.size(); ++i) {
    const std::vector<float> logits = model.Step({}, {{&sequence, 1}}).front();
    reading.choices.push_back(ArgMax(logits));
    const float highest = logits[static_cast<size_t>(reading.choices.back())];
    double total = 0;
    for (float logit : logits) total += std::exp(static_cast<double>(logit) - highest);
    reading.loss += highest + std::log(total) - logits[static_cast<size_t>(ids[i])];
  }
  reading.loss /= static_cast<double>(ids.size() - 1);
  return reading;
}

TestModelOptions SampleOptions() {
  return {.directory = SampleModel(), .num_threads = 2, .max_tokens = 4096};
}

// That the sample model loses little on its own text where it is computed with `options`.
void ExpectToKeepTheLoss(const TestModelOptions& options) {
  const Json golden = ParseJson(ReadFile(TreePath("tests/golden/logits/sample.json")));
  ASSERT_TRUE(golden.is_object() && !golden["cases"].empty());
  const auto exact = ModelUnderTest::Load(SampleOptions());
  const auto eight = ModelUnderTest::Load(options);
  for (const Json& c : golden["cases"]) {
    auto ids = c["prompt_ids"].get<std::vector<int32_t>>();
    const auto greedy = c["greedy_ids"].get<std::vector<int32_t>>();
    ids.insert(ids.end(), greedy.begin(), greedy.end());
    const Reading expected = Read(*exact, ids);
    const Reading reading = Read(*eight, ids);
    size_t same = 0;
    for (size_t i = 0; i < reading.choices.size(); ++i) {
      same += reading.choices[i] == expected.choices[i] ? 1 : 0;
    }
    SCOPED_TRACE(fmt::format("{} tokens: loss {:.4f} and {:.4f}, {} choices alike", ids.size(),
                             expected.loss, reading.loss, same));
    EXPECT_NE(reading.loss, expected.loss);
    EXPECT_NEAR(reading.loss, expected.loss, 0.01);
    EXPECT_GT(same, reading.choices.size() * 9 / 10);
  }
}

// Rounding KV to three bits of fraction moves the model's loss on its own text by little.
TEST(EightBitKvTest, KeepsTheLossOfTheSampleModel) {
  TestModelOptions options = SampleOptions();
  options.kv_dtype = DType::kF8E4M3;
  ExpectToKeepTheLoss(options);
}

class Int8WeightsModelTest : public testing::TestWithParam<WeightsAs> {};

TEST_P(Int8WeightsModelTest, KeepsTheLossOfTheSampleModel) {
  TestModelOptions options = SampleOptions();
  options.weights_as = GetParam();
  ExpectToKeepTheLoss(options);
}

// Promise P2, for weights that are quantised when they are loaded: on this machine, and on any
// number of threads.
TEST_P(Int8WeightsModelTest, GivesTheSameBitsInChunksOfAnySizeAndOnAnyNumberOfThreads) {
  const int32_t kTokens = 150;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kTokens; ++i) ids.push_back(5 + i * 7 % 400);
  TestModelOptions options = SampleOptions();
  options.weights_as = GetParam();
  std::vector<float> expected;
  for (const int threads : {1, 2, 3}) {
    options.num_threads = threads;
    const auto model = ModelUnderTest::Load(options);
    for (const int32_t chunk : {kTokens, 64, 17, 1}) {
      TestSequence sequence = model->NewSequence(ids);
      const std::vector<float> logits = model->Prefill(sequence, chunk);
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << threads << " threads, chunks of " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Int8WeightsModelTest,
                         testing::Values(WeightsAs::kInt8, WeightsAs::kInt8Layers),
                         [](const auto& info) {
                           std::string name(Name(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenLogitsTest,
                         testing::Values("fp8", "fp8_block", "int8", "int8_group", "llama2",
                                         "llama3", "linear", "mistral", "qwen2", "qwen3", "sharded",
                                         "sample"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem::golden_logits_test
