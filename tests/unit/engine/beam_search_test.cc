// The algorithm against transformers (tests/golden/README.md) on a random tree of tokens, and against
// every sequence there is.

#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/json.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"
#include "tests/unit/engine/beam_token_ids.h"

namespace tandem::beam_search_test {
namespace {

using Json = nlohmann::json;
using EarlyStopping = BeamParams::EarlyStopping;
using beam_token_ids::Ids;
using beam_token_ids::TokenIds;

// A model whose logits are random and depend on every token before: TreeModel of
// tests/golden/beam_cases.py.
class Tree {
 public:
  explicit Tree(int32_t vocab_size) : vocab_size_(vocab_size) {}

  int32_t vocab_size() const { return vocab_size_; }

  // Log-probabilities of what follows `ids`, by token.
  std::vector<double> Logprobs(const TokenIds& ids) const {
    uint64_t state = 0;
    for (const int32_t id : ids) state = Mix(state ^ static_cast<uint64_t>(id));
    std::vector<double> row;
    double total = 0;
    for (int32_t id = 0; id < vocab_size_; ++id) {
      const uint64_t bits = Mix(state + static_cast<uint64_t>(id)) >> 40;
      row.push_back(static_cast<double>(bits) / (1 << 21) - 4);
      total += std::exp(row.back());
    }
    for (double& logit : row) logit -= std::log(total);
    return row;
  }

  std::vector<TokenLogprob> Top(const TokenIds& ids, int32_t count) const {
    const std::vector<double> row = Logprobs(ids);
    std::vector<TokenLogprob> top;
    for (int32_t id = 0; id < vocab_size_; ++id) {
      top.push_back({.token_id = id, .logprob = static_cast<float>(row[static_cast<size_t>(id)])});
    }
    std::stable_sort(top.begin(), top.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
      return a.logprob > b.logprob;
    });
    top.resize(static_cast<size_t>(std::min(count, vocab_size_)));
    return top;
  }

 private:
  // The finalizer of splitmix64 (Steele, Lea and Flood 2014).
  static uint64_t Mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

  const int32_t vocab_size_;
};

// The hypotheses of a search that is run as an engine does: its own sequences are forked by what
// each step says.
std::vector<BeamHypothesis> Search(const Tree& tree, const TokenIds& prompt,
                                   const BeamSearch::Options& options) {
  BeamSearch search(options);
  std::vector<TokenIds> live = {prompt};
  while (!search.done()) {
    EXPECT_EQ(static_cast<size_t>(search.num_live()), live.size());
    std::vector<std::vector<TokenLogprob>> tops;
    for (const TokenIds& ids : live) tops.push_back(tree.Top(ids, search.candidates_per_beam()));
    const std::vector<std::span<const TokenLogprob>> top(tops.begin(), tops.end());
    std::vector<TokenIds> next;
    for (const BeamSearch::Continuation& continuation : search.Step(top)) {
      next.push_back(live[static_cast<size_t>(continuation.parent)]);
      next.back().push_back(continuation.token_id);
    }
    live = std::move(next);
  }
  EXPECT_TRUE(live.empty());
  EXPECT_EQ(search.num_live(), 0);
  return search.Best(options.params.width);
}

EarlyStopping EarlyStoppingOf(const Json& value) {
  if (value.is_string()) return EarlyStopping::kNever;
  return value.get<bool>() ? EarlyStopping::kFirst : EarlyStopping::kHeuristic;
}

TEST(BeamSearchTest, FindsWhatTransformersFinds) {
  const Json golden = ParseJson(ReadFile(TreePath("tests/golden/beams/tree.json")));
  ASSERT_TRUE(golden.is_object());
  ASSERT_GE(golden["cases"].size(), 200u);
  const Tree tree(golden["vocab_size"].get<int32_t>());
  for (const Json& c : golden["cases"]) {
    SCOPED_TRACE("prompt " + c["prompt_ids"].dump());
    const BeamSearch::Options options = {
        .params = {.width = c["num_beams"].get<int32_t>(),
                   .length_penalty = c["length_penalty"].get<float>(),
                   .early_stopping = EarlyStoppingOf(c["early_stopping"])},
        .max_tokens = c["max_new_tokens"].get<int32_t>(),
        .stop_token_ids = c["stop_token_ids"].get<TokenIds>()};
    const auto best = Search(tree, c["prompt_ids"].get<TokenIds>(), options);
    ASSERT_EQ(best.size(), c["hypotheses"].size());
    for (size_t i = 0; i < best.size(); ++i) {
      const Json& expected = c["hypotheses"][i];
      EXPECT_EQ(Ids(best[i]), expected["ids"].get<TokenIds>()) << "hypothesis " << i;
      const auto score = expected["score"].get<double>();
      EXPECT_NEAR(best[i].score, score, 1e-5 * std::max(1.0, std::abs(score)));
    }
  }
}

// Every sequence that ends, best first.
struct Sequence {
  TokenIds ids;
  double sum = 0;
  double score = 0;
};

void Enumerate(const Tree& tree, const TokenIds& prompt, const BeamSearch::Options& options,
               const Sequence& so_far, std::vector<Sequence>& ended) {
  TokenIds context = prompt;
  context.insert(context.end(), so_far.ids.begin(), so_far.ids.end());
  const std::vector<double> row = tree.Logprobs(context);
  for (int32_t id = 0; id < tree.vocab_size(); ++id) {
    Sequence longer = so_far;
    longer.ids.push_back(id);
    longer.sum += row[static_cast<size_t>(id)];
    const bool stop = std::count(options.stop_token_ids.begin(), options.stop_token_ids.end(), id);
    if (!stop && longer.ids.size() < static_cast<size_t>(options.max_tokens)) {
      Enumerate(tree, prompt, options, longer, ended);
      continue;
    }
    longer.score = longer.sum / std::pow(longer.ids.size(), options.params.length_penalty);
    ended.push_back(std::move(longer));
  }
}

std::vector<Sequence> AllSequences(const Tree& tree, const TokenIds& prompt,
                                   const BeamSearch::Options& options) {
  std::vector<Sequence> ended;
  Enumerate(tree, prompt, options, {}, ended);
  std::sort(ended.begin(), ended.end(),
            [](const Sequence& a, const Sequence& b) { return a.score > b.score; });
  return ended;
}

void ExpectFindsTheBest(const Tree& tree, const TokenIds& prompt,
                        const BeamSearch::Options& options) {
  const auto best = Search(tree, prompt, options);
  const std::vector<Sequence> all = AllSequences(tree, prompt, options);
  ASSERT_EQ(best.size(), std::min<size_t>(16, all.size()));
  for (size_t i = 0; i < best.size(); ++i) {
    ASSERT_EQ(Ids(best[i]), all[i].ids);
    ASSERT_NEAR(best[i].score, all[i].score, 1e-4 * std::max(1.0, std::abs(all[i].score)));
    ASSERT_NEAR(best[i].cumulative_logprob, all[i].sum, 1e-5);
  }
}

// Wide enough to rank every continuation but the last ones, a search that never stops early finds
// the best there are.
TEST(BeamSearchTest, FindsTheBestSequencesWhenItIsWideEnough) {
  struct Size {
    int32_t vocab_size, num_stops, max_tokens;
  };
  for (const Size size : {Size{4, 1, 3}, Size{3, 1, 4}, Size{5, 2, 3}, Size{6, 4, 3}}) {
    BeamSearch::Options options = {.params = {.width = 16, .early_stopping = EarlyStopping::kNever},
                                   .max_tokens = size.max_tokens};
    for (int32_t id = 0; id < size.num_stops; ++id) options.stop_token_ids.push_back(id);
    for (int32_t prompt = 0; prompt < 200; ++prompt) {
      const float penalties[] = {1, 0, 2, -0.5f, -3};
      options.params.length_penalty = penalties[prompt % 5];
      SCOPED_TRACE(testing::Message() << "vocabulary " << size.vocab_size << ", prompt " << prompt);
      ExpectFindsTheBest(Tree(size.vocab_size), {prompt}, options);
    }
  }
}

void ExpectSound(const BeamHypothesis& hypothesis, const BeamSearch::Options& options) {
  const auto& stops = options.stop_token_ids;
  const auto is_stop = [&](const BeamToken& token) {
    return std::binary_search(stops.begin(), stops.end(), token.token_id);
  };
  const std::vector<BeamToken>& tokens = hypothesis.tokens;
  ASSERT_FALSE(tokens.empty());
  EXPECT_TRUE(std::none_of(tokens.begin(), tokens.end() - 1, is_stop));
  const bool stopped = is_stop(tokens.back());
  EXPECT_EQ(hypothesis.reason, stopped ? FinishReason::kStop : FinishReason::kLength);
  EXPECT_TRUE(stopped || tokens.size() == static_cast<size_t>(options.max_tokens));
  double sum = 0;
  for (const BeamToken& token : tokens) sum += token.logprob;
  EXPECT_NEAR(hypothesis.cumulative_logprob, sum, 1e-5);
}

TEST(BeamSearchTest, HypothesesAreOrderedAndTellHowTheyEnded) {
  const Tree tree(30);
  BeamSearch::Options options = {.params = {.width = 5, .length_penalty = 0.5f},
                                 .max_tokens = 7,
                                 .stop_token_ids = {3, 11, 12, 29}};
  for (int32_t prompt = 0; prompt < 150; ++prompt) {
    options.params.early_stopping = static_cast<EarlyStopping>(prompt % 3);
    const auto best = Search(tree, {prompt}, options);
    ASSERT_EQ(best.size(), 5u);
    for (const BeamHypothesis& hypothesis : best) ExpectSound(hypothesis, options);
    EXPECT_TRUE(std::is_sorted(
        best.begin(), best.end(),
        [](const BeamHypothesis& a, const BeamHypothesis& b) { return a.score > b.score; }));
  }
}

}  // namespace
}  // namespace tandem::beam_search_test
