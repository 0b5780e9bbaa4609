// A model on the device of the test (tests/support/test_device.h), whose activations may be of 16
// bits: against transformers in float32, against the CPU, and against itself in other company.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "model/checkpoint/checkpoint.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/shallow_model.h"
#include "tests/support/test_device.h"
#include "tests/support/tree.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem::device_model_test {
namespace {

using Json = nlohmann::json;

const std::string kRoot = TreePath("");
constexpr char kSample[] = "models/sample";

// How far logits may be off, as a share of the largest, where activations have 8 bits (bf16), 11
// (f16) or 24 of mantissa: a few roundings per layer of a few layers.
double ToleranceOf(DType dtype) {
  return dtype == DType::kBF16 ? 0.04 : dtype == DType::kF16 ? 0.005 : 1e-4;
}

struct Golden {
  std::vector<int32_t> prompt;
  std::vector<double> logits;  // after the prompt
  std::vector<int32_t> ids;    // the greedy ones
  std::vector<double> margins;
};

std::vector<Golden> GoldensOf(const Json& file) {
  std::vector<Golden> goldens;
  for (const Json& c : file["cases"]) {
    goldens.push_back({.prompt = c["prompt_ids"].get<std::vector<int32_t>>(),
                       .logits = c["last_logits"].get<std::vector<double>>(),
                       .ids = c["greedy_ids"].get<std::vector<int32_t>>(),
                       .margins = c["greedy_margins"].get<std::vector<double>>()});
  }
  return goldens;
}

Json ReadGoldens(const std::string& name) {
  return ParseJson(ReadFile(kRoot + "tests/golden/logits/" + name + ".json"));
}

double Largest(const std::vector<double>& logits) {
  double largest = 0;
  for (const double logit : logits) largest = std::max(largest, std::abs(logit));
  return largest;
}

void ExpectClose(const std::vector<float>& logits, const std::vector<double>& expected,
                 double tolerance) {
  ASSERT_EQ(logits.size(), expected.size());
  double worst = 0, dot = 0, norm = 0, expected_norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::isfinite(logits[i])) << "logit " << i;
    worst = std::max(worst, std::abs(logits[i] - expected[i]));
    dot += logits[i] * expected[i];
    norm += double{logits[i]} * logits[i];
    expected_norm += expected[i] * expected[i];
  }
  const double share = worst / Largest(expected);
  EXPECT_LE(share, tolerance);
  EXPECT_GE(dot / std::sqrt(norm * expected_norm), 1 - tolerance * tolerance);
  testing::Test::RecordProperty("max_error_of_the_largest", std::to_string(share));
}

class DeviceGoldenTest : public testing::TestWithParam<const char*> {};

// The golden's tokens are fed whatever ours are, so that one near-tie is one difference.
TEST_P(DeviceGoldenTest, IsCloseToTransformers) {
  const Json file = ReadGoldens(GetParam());
  ASSERT_TRUE(file.is_object() && !file["cases"].empty());
  const auto model =
      ModelUnderTest::Load({.directory = kRoot + file["checkpoint"].get<std::string>()});
  const double tolerance = ToleranceOf(model->config().dtype);
  for (const Golden& golden : GoldensOf(file)) {
    SCOPED_TRACE("prompt of " + std::to_string(golden.prompt.size()) + " tokens");
    TestSequence sequence = model->NewSequence(golden.prompt);
    const auto rows = static_cast<int32_t>(golden.prompt.size());
    std::vector<float> logits = model->Prefill(sequence, rows);
    ExpectClose(logits, golden.logits, tolerance);
    for (size_t i = 0; i < TestTokens(golden.ids.size()); ++i) {
      const int32_t best = ArgMax(logits);
      const double lost = logits[best] - logits[golden.ids[i]];
      EXPECT_LE(lost, 2 * tolerance * Largest(golden.logits))
          << "token " << i << ": " << best << " instead of " << golden.ids[i];
      if (golden.margins[i] > 2 * tolerance * Largest(golden.logits)) {
        EXPECT_EQ(best, golden.ids[i]) << "token " << i << " of margin " << golden.margins[i];
      }
      sequence.ids.push_back(golden.ids[i]);
      logits = model->Step({}, {{&sequence, 1}}).front();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceGoldenTest,
                         testing::Values("llama2", "llama3", "linear", "mistral", "qwen2", "qwen3",
                                         "sharded", "sample"),
                         [](const auto& info) { return std::string(info.param); });

class DeviceModelTest : public testing::Test {
 protected:
  static std::unique_ptr<ModelUnderTest> Load(TestModelOptions options = {}) {
    if (options.directory.empty()) options.directory = ShallowSample();
    options.kv_dtype = DType::kBF16;
    return ModelUnderTest::Load(options);
  }

  static std::vector<std::vector<int32_t>> Prompts() {
    std::vector<std::vector<int32_t>> prompts;
    for (const Golden& golden : GoldensOf(ReadGoldens("sample"))) prompts.push_back(golden.prompt);
    return prompts;
  }

  // The logits after a prompt, and after each of as many decode steps, in which both take the CPU's
  // token.
  static void ExpectLogitsOfTheCpu(TestModelOptions options, int32_t prompt_tokens, int decodes) {
    const std::vector<int32_t> text = Prompts().back();
    const std::vector<int32_t> prompt(text.begin(), text.begin() + prompt_tokens);
    options.directory = ShallowSample();
    const auto on_device = ModelUnderTest::Load(options);
    options.device = "cpu";
    const auto on_cpu = ModelUnderTest::Load(options);
    TestSequence ours = on_device->NewSequence(prompt);
    TestSequence theirs = on_cpu->NewSequence(prompt);
    std::vector<float> logits = on_device->Prefill(ours, prompt_tokens);
    std::vector<float> expected = on_cpu->Prefill(theirs, prompt_tokens);
    for (int i = 0;; ++i) {
      SCOPED_TRACE("after " + std::to_string(i) + " decode steps");
      ExpectClose(logits, {expected.begin(), expected.end()}, ToleranceOf(DType::kBF16));
      if (i == decodes) return;
      const int32_t best = ArgMax(expected);
      for (TestSequence* sequence : {&ours, &theirs}) sequence->ids.push_back(best);
      logits = on_device->Step({}, {{&ours, 1}}).front();
      expected = on_cpu->Step({}, {{&theirs, 1}}).front();
    }
  }
};

// A prompt, whose products widen the weights, and tokens after it, whose products read the codes.
TEST_F(DeviceModelTest, WeightsInInt8GiveTheLogitsOfTheCpu) {
  for (const WeightsAs as : {WeightsAs::kInt8, WeightsAs::kInt8Layers}) {
    SCOPED_TRACE(std::string(Name(as)));
    ExpectLogitsOfTheCpu({.weights_as = as, .kv_dtype = DType::kBF16}, 40, 2);
  }
}

// The greedy tokens of each prompt. Activations of 16 bits may let a near-tie fall the other way:
// then both go on with the CPU's token.
TEST_F(DeviceModelTest, TheGreedyTokensOfTheSampleModelAreThoseOfTheCpu) {
  constexpr size_t kTokens = 64;
  const size_t tokens = TestTokens(kTokens);
  constexpr float kNearTie = 0.1f;
  const auto on_device = Load({.directory = kRoot + kSample});
  const auto on_cpu = Load({.directory = kRoot + kSample, .device = "cpu"});
  size_t ties = 0;
  for (const std::vector<int32_t>& prompt : Prompts()) {
    SCOPED_TRACE("prompt of " + std::to_string(prompt.size()) + " tokens");
    TestSequence ours = on_device->NewSequence(prompt);
    TestSequence theirs = on_cpu->NewSequence(prompt);
    std::vector<float> logits = on_device->Prefill(ours, 256);
    std::vector<float> expected = on_cpu->Prefill(theirs, 256);
    for (size_t i = 0; i < tokens; ++i) {
      const int32_t best = ArgMax(expected);
      const float gap = expected[best] - expected[ArgMax(logits)];
      EXPECT_LE(gap, kNearTie) << "token " << i << ": " << ArgMax(logits) << " instead of " << best;
      ties += gap > 0 ? 1 : 0;
      for (TestSequence* sequence : {&ours, &theirs}) sequence->ids.push_back(best);
      logits = on_device->Step({}, {{&ours, 1}}).front();
      expected = on_cpu->Step({}, {{&theirs, 1}}).front();
    }
  }
  EXPECT_LE(kTokens * ties, 3 * tokens) << ties << " of " << tokens << " tokens of each prompt";
  RecordProperty("ties_that_fell_the_other_way", static_cast<int>(ties));
}

// Batches that grow and shrink through the sizes that are filled up to, twice, so that each size
// runs as it is, is recorded and is replayed; chunks of other prompts in between.
TEST_F(DeviceModelTest, WithFixedSplitsNoCompanyChangesATokensLogits) {
  const auto model = Load({.max_tokens = 2048, .splits = SplitMode::kFixed});
  const std::vector<int32_t> text = Prompts().back();
  constexpr int32_t kSequences = 8;
  const auto prompt_of = [&text](int32_t i) {
    return std::vector<int32_t>(text.begin() + 5 * i, text.begin() + 5 * i + 20 + 17 * i);
  };
  std::vector<TestSequence> together;
  std::vector<std::vector<float>> next;
  std::vector<std::vector<std::vector<float>>> seen(kSequences);
  for (int32_t i = 0; i < kSequences; ++i) {
    together.push_back(model->NewSequence(prompt_of(i)));
    next.push_back(model->Prefill(together.back(), 64));
    seen[i].push_back(next[i]);
  }
  for (const int32_t size : {1, 2, 3, 5, 8, 7, 4, 2, 1, 8, 6, 3, 8, 5, 2}) {
    std::vector<TestWork> decodes;
    for (int32_t i = 0; i < size; ++i) {
      together[i].ids.push_back(ArgMax(next[i]));
      decodes.push_back({&together[i], 1});
    }
    const auto logits = model->Step({}, decodes);
    for (int32_t i = 0; i < size; ++i) {
      next[i] = logits[i];
      seen[i].push_back(logits[i]);
    }
  }
  for (int32_t i = 0; i < kSequences; ++i) {
    TestSequence alone = model->NewSequence(prompt_of(i));
    std::vector<float> logits = model->Prefill(alone, 64);
    for (size_t step = 0; step < seen[i].size(); ++step) {
      EXPECT_EQ(logits, seen[i][step]) << "sequence " << i << ", after " << step << " steps";
      logits = model->DecodeGreedily(alone, logits);
    }
  }
}

TEST_F(DeviceModelTest, KvIn8BitsIsThatOfTheCpu) {
  ExpectLogitsOfTheCpu({.kv_dtype = DType::kF8E4M3}, 50, 3);
}

TEST_F(DeviceModelTest, ChunksOfAPromptGiveWhatTheWholeGives) {
  const auto model = Load({.max_tokens = 2048});
  const std::vector<int32_t> prompt = Prompts().back();
  TestSequence whole = model->NewSequence(prompt);
  const std::vector<float> expected = model->Prefill(whole, static_cast<int32_t>(prompt.size()));
  for (const int32_t chunk : {77, 256}) {
    SCOPED_TRACE("chunks of " + std::to_string(chunk));
    TestSequence cut = model->NewSequence(prompt);
    const std::vector<float> logits = model->Prefill(cut, chunk);
    ExpectClose(logits, {expected.begin(), expected.end()}, ToleranceOf(model->config().dtype));
    EXPECT_EQ(ArgMax(logits), ArgMax(expected));
  }
}

TEST_F(DeviceModelTest, ChunksAndDecodesInOneStep) {
  const auto model = Load({.max_tokens = 2048});
  const std::vector<int32_t> text = Prompts().back();
  const std::vector<int32_t> short_prompt(text.begin(), text.begin() + 40);
  TestSequence alone = model->NewSequence(short_prompt);
  std::vector<float> logits = model->Prefill(alone, 40);
  TestSequence decoding = model->NewSequence(short_prompt);
  model->Prefill(decoding, 40);
  TestSequence prefilled = model->NewSequence(text);
  std::vector<float> last;
  for (int step = 0; step < 6; ++step) {
    const int32_t next = ArgMax(logits);
    decoding.ids.push_back(next);
    const auto both = model->Step({{&prefilled, 100}}, {{&decoding, 1}});
    logits = model->DecodeGreedily(alone, logits);
    ExpectClose(both[1], {logits.begin(), logits.end()}, ToleranceOf(model->config().dtype));
    last = both[0];
  }
  TestSequence whole = model->NewSequence(text);
  const std::vector<float> expected = model->Prefill(whole, 600);
  ExpectClose(last, {expected.begin(), expected.end()}, ToleranceOf(model->config().dtype));
}

}  // namespace
}  // namespace tandem::device_model_test
