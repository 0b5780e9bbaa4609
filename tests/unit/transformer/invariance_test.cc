// P2 at the level of one forward pass: the logits of a row are the same bits whatever the chunking,
// the company in the batch, the number of threads, and whether the row ran as prefill or as decode.

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "tests/support/tree.h"
#include "tests/unit/transformer/model_under_test.h"

namespace tandem::invariance_test {
namespace {

struct Case {
  const char* checkpoint;
  int32_t prompt_tokens;
  DType kv_dtype;
  const char* device = "cpu";
};

std::string Directory(const Case& c) { return TreePath("") + c.checkpoint; }

std::vector<int32_t> Prompt(int32_t tokens, int32_t vocab_size, uint32_t seed) {
  std::vector<int32_t> ids(tokens);
  for (int32_t& id : ids) {
    seed = seed * 1664525u + 1013904223u;
    id = static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(vocab_size));
  }
  return ids;
}

// Bitwise: == would call 0 and -0 the same, and NaN different from itself.
void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

class InvarianceTest : public testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<ModelUnderTest> Load(int num_threads) {
    return ModelUnderTest::Load({.directory = Directory(GetParam()),
                                 .device = GetParam().device,
                                 .num_threads = num_threads,
                                 .kv_dtype = GetParam().kv_dtype,
                                 .max_tokens = 2048});
  }

  // Logits after the prompt and after each of a few greedy tokens.
  static std::vector<std::vector<float>> Run(ModelUnderTest& model, int32_t chunk) {
    TestSequence sequence =
        model.NewSequence(Prompt(GetParam().prompt_tokens, model.config().vocab_size, 1));
    std::vector<std::vector<float>> logits = {model.Prefill(sequence, chunk)};
    for (int i = 0; i < 4; ++i) logits.push_back(model.DecodeGreedily(sequence, logits.back()));
    return logits;
  }

  static void ExpectSame(const std::vector<std::vector<float>>& a,
                         const std::vector<std::vector<float>>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      SCOPED_TRACE("after " + std::to_string(i) + " decode steps");
      ExpectSameBits(a[i], b[i]);
    }
  }
};

TEST_P(InvarianceTest, ChunkingDoesNotMatter) {
  const auto model = Load(2);
  const auto whole = Run(*model, GetParam().prompt_tokens);
  for (int32_t chunk : {1, 17, 256}) {
    SCOPED_TRACE("chunks of " + std::to_string(chunk));
    ExpectSame(Run(*model, chunk), whole);
  }
}

TEST_P(InvarianceTest, ThreadsDoNotMatter) {
  const auto one = Load(1);
  const auto two = Load(2);
  ExpectSame(Run(*one, 64), Run(*two, 64));
}

// A processor with AVX2 computes what one with AVX-512 does, with and without its products of bf16.
TEST_P(InvarianceTest, VectorWidthsDoNotMatter) {
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) GTEST_SKIP() << "this processor has no AVX-512";
  const auto run = [](int64_t target) {
    const auto model = Load(2);
    hwy::GetChosenTarget().Update(target);  // after a device was opened, which chooses the best
    auto logits = Run(*model, 64);
    hwy::GetChosenTarget().DeInit();
    return logits;
  };
  ExpectSame(run(HWY_AVX2), run(HWY_AVX3));
}

TEST_P(InvarianceTest, DecodeEqualsPrefillOfTheSameToken) {
  const auto model = Load(2);
  const std::vector<int32_t> ids = Prompt(GetParam().prompt_tokens, model->config().vocab_size, 1);
  TestSequence prefilled = model->NewSequence(ids);
  const std::vector<float> expected = model->Prefill(prefilled, GetParam().prompt_tokens);
  TestSequence decoded = model->NewSequence(ids);
  std::vector<float> logits;
  for (int32_t i = 0; i < GetParam().prompt_tokens; ++i) {
    logits = model->Step({}, {{&decoded, 1}}).front();
  }
  ExpectSameBits(logits, expected);
}

TEST_P(InvarianceTest, CompanyDoesNotMatter) {
  const auto model = Load(2);
  const int32_t vocab = model->config().vocab_size;
  const int32_t tokens = GetParam().prompt_tokens;
  const std::vector<int32_t> first_ids = Prompt(tokens, vocab, 1);
  const std::vector<int32_t> second_ids = Prompt(tokens / 2, vocab, 2);
  TestSequence alone_1 = model->NewSequence(first_ids);
  TestSequence alone_2 = model->NewSequence(second_ids);
  const std::vector<float> expected_1 = model->Prefill(alone_1, tokens);
  const std::vector<float> expected_2 = model->Prefill(alone_2, tokens);

  // Two prompts end in one step, beside sequences that decode.
  TestSequence first = model->NewSequence(first_ids);
  TestSequence second = model->NewSequence(second_ids);
  TestSequence other_1 = model->NewSequence(Prompt(5, vocab, 3));
  TestSequence other_2 = model->NewSequence(Prompt(41, vocab, 4));
  model->Step({{&other_1, 4}, {&other_2, 40}, {&first, 3}});
  const auto together =
      model->Step({{&second, tokens / 2}, {&first, tokens - 3}}, {{&other_1, 1}, {&other_2, 1}});
  ExpectSameBits(together[0], expected_2);
  ExpectSameBits(together[1], expected_1);

  // And both decode on in one batch.
  const std::vector<float> next_1 = model->DecodeGreedily(alone_1, expected_1);
  const std::vector<float> next_2 = model->DecodeGreedily(alone_2, expected_2);
  first.ids.push_back(ArgMax(expected_1));
  second.ids.push_back(ArgMax(expected_2));
  const auto decoded = model->Step({}, {{&first, 1}, {&second, 1}});
  ExpectSameBits(decoded[0], next_1);
  ExpectSameBits(decoded[1], next_2);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, InvarianceTest,
                         testing::Values(Case{"models/sample", 301, DType::kBF16},
                                         Case{"models/sample", 301, DType::kBF16, "cpu-bf16"},
                                         Case{"models/sample", 150, DType::kF8E4M3, "cpu-bf16"},
                                         Case{"models/sample", 150, DType::kF8E4M3},
                                         Case{"models/sample", 150, DType::kK8V8},
                                         Case{"models/sample", 150, DType::kK6V5},
                                         Case{"models/sample", 150, DType::kK4V3},
                                         Case{"tests/golden/checkpoints/mistral", 90, DType::kF32},
                                         Case{"tests/golden/checkpoints/qwen2", 120, DType::kF16},
                                         Case{"tests/golden/checkpoints/qwen3", 120, DType::kBF16},
                                         Case{"tests/golden/checkpoints/linear", 100, DType::kF32}),
                         [](const auto& info) {
                           const std::string name = info.param.checkpoint;
                           return name.substr(name.rfind('/') + 1) + "_" +
                                  std::string(Name(info.param.kv_dtype)) +
                                  (info.param.device == std::string("cpu") ? "" : "_rounded");
                         });

}  // namespace
}  // namespace tandem::invariance_test
