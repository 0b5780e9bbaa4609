#include "bench/serving/prompt.h"

#include <algorithm>
#include <cstddef>

#include "base/rng.h"

namespace tandem::loadgen {
namespace {

constexpr int kLetters = 26;
constexpr int kWords = kLetters * kLetters;

void AppendWord(int number, std::string& text) {
  text += static_cast<char>('a' + number / kLetters);
  text += static_cast<char>('a' + number % kLetters);
}

// The element of [0, count) at `position` of a segment.
size_t DrawAt(uint64_t seed, int32_t position, size_t count) {
  return static_cast<size_t>(UniformAt(seed, static_cast<uint64_t>(position)) *
                             static_cast<double>(count));
}

}  // namespace

std::string PoolText() {
  std::string text;
  for (int word = 0; word < kWords; ++word) {
    text += ' ';
    AppendWord(word, text);
  }
  return text;
}

std::vector<int32_t> MakeTokenPool(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<int32_t> MakePromptTokens(const ScheduledRequest& request,
                                      const std::vector<int32_t>& pool) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(request.prompt_tokens()));
  for (const PromptSegment& segment : request.prompt) {
    for (int32_t i = 0; i < segment.tokens; ++i) {
      tokens.push_back(pool[DrawAt(segment.seed, i, pool.size())]);
    }
  }
  return tokens;
}

std::string MakePromptText(const ScheduledRequest& request) {
  std::string text;
  for (const PromptSegment& segment : request.prompt) {
    for (int32_t i = 0; i < segment.tokens; ++i) {
      if (!text.empty()) text += ' ';
      AppendWord(static_cast<int>(DrawAt(segment.seed, i, kWords)), text);
    }
  }
  return text;
}

}  // namespace tandem::loadgen
