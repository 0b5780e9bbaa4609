#pragma once

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::resumed_requests {

// Tokens that the test model knows, and how many a request may say.
inline constexpr int32_t kVocabSize = 288;
inline constexpr int32_t kOutput = 10;

// What a request says undisturbed.
struct Whole {
  std::vector<std::vector<SampledToken>> tokens;  // [choice]
  std::vector<ChoiceEnd> ends;                    // likewise
};

// How choice `index` ended; it must have.
inline ChoiceEnd EndOf(const Recording& recording, int32_t index) {
  for (const ChoiceEnd& end : recording.choice_ends()) {
    if (end.index == index) return end;
  }
  ADD_FAILURE() << "choice " << index << " did not end";
  return {};
}

// What the engine answers to a request that it has from its beginning.
inline Whole Undisturbed(TestEngine& engine, const EngineRequest& request) {
  Recording recording;
  engine->Submit(request, recording.NewSink());
  EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  Whole whole;
  for (int32_t i = 0; i < request.n; ++i) {
    whole.tokens.push_back(recording.tokens(i));
    whole.ends.push_back(EndOf(recording, i));
  }
  return whole;
}

// A request of one choice without chance.
inline EngineRequest GreedyRequest() {
  EngineRequest request = Greedy(1, RandomPrompt(3, 21, kVocabSize), kOutput);
  request.sampling.num_logprobs = 3;
  return request;
}

// A request of `n` choices that are sampled, with every penalty.
inline EngineRequest SampledRequest(int32_t n) {
  EngineRequest request = GreedyRequest();
  request.n = n;
  request.sampling = {.temperature = 0.9f,
                      .top_k = 60,
                      .repetition_penalty = 1.2f,
                      .presence_penalty = 0.4f,
                      .frequency_penalty = 0.3f,
                      .seed = 77,
                      .num_logprobs = 3};
  return request;
}

// The request with the first `said` tokens of each choice, as far as it has so many.
inline EngineRequest Resumed(EngineRequest request, const Whole& whole,
                             const std::vector<int32_t>& said) {
  for (size_t i = 0; i < whole.tokens.size(); ++i) {
    OutputSoFar& so_far = request.so_far.emplace_back();
    for (const SampledToken& token : whole.tokens[i]) {
      if (std::ssize(so_far.token_ids) == said[i]) break;
      so_far.token_ids.push_back(token.token_id);
      so_far.cumulative_logprob += token.logprob;
    }
    so_far.ended = so_far.token_ids.size() == whole.tokens[i].size();
  }
  return request;
}

}  // namespace tandem::resumed_requests
