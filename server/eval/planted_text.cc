#include "server/eval/planted_text.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 16> kCities = {
    "Lisbon", "Oslo",   "Nairobi", "Lima",   "Hanoi",  "Quebec", "Athens", "Dublin",
    "Cairo",  "Sydney", "Havana",  "Prague", "Zurich", "Kyoto",  "Tunis",  "Denver"};

// All numbers of five digits, in steps that share no factor with their count, so that none comes
// twice.
constexpr int64_t kFirstCode = 10'000;
constexpr int64_t kNumCodes = 90'000;
constexpr int64_t kCodeStep = 48'271;

// A planted fact in tokens.
struct FactTokens {
  std::vector<int32_t> sentence;
  std::vector<int32_t> question;
  std::vector<int32_t> answer;
};

// Question and answer are tokenized as one text, because a vocabulary may have other tokens for a
// text that begins than for one that goes on.
absl::StatusOr<FactTokens> TokensOf(const PlantedFact& fact, const TokenizeText& tokenize) {
  ASSIGN_OR_RETURN(std::vector<int32_t> sentence, tokenize(fact.sentence, Template::kOmit));
  ASSIGN_OR_RETURN(const std::vector<int32_t> question, tokenize(fact.question, Template::kOmit));
  ASSIGN_OR_RETURN(const std::vector<int32_t> both,
                   tokenize(fact.question + fact.answer, Template::kOmit));
  const auto answer = std::ranges::mismatch(both, question).in1;
  if (answer == both.end()) {
    return Internal("the tokens of \"{}\" are no more than those of \"{}\"",
                    fact.question + fact.answer, fact.question);
  }
  return FactTokens{.sentence = std::move(sentence),
                    .question = {both.begin(), answer},
                    .answer = {answer, both.end()}};
}

void Append(std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

// The fact goes into the prompt at `place`, and the question to where it is asked.
absl::Status Plant(const FactTokens& fact, int64_t place, PlantedQuestion question,
                   EvalWindow& window) {
  const std::vector<int32_t> asked =
      question == PlantedQuestion::kKnown ? fact.question : std::vector<int32_t>();
  const int64_t prompt_tokens = std::ssize(window.prompt);
  const int64_t kept = prompt_tokens - std::ssize(fact.sentence) - std::ssize(asked);
  if (kept < place) {
    return InvalidArgument(
        "a prompt of {} tokens has no room at token {} for the {} of a planted fact and of what "
        "asks for it: give more to --prompt-tokens",
        prompt_tokens, place, prompt_tokens - kept);
  }
  window.prompt.resize(static_cast<size_t>(kept));
  window.prompt.insert(window.prompt.begin() + place, fact.sentence.begin(), fact.sentence.end());
  Append(window.prompt, asked);
  window.output.clear();
  if (question == PlantedQuestion::kLater) window.output = fact.question;
  Append(window.output, fact.answer);
  window.answer_tokens = std::ssize(fact.answer);
  return absl::OkStatus();
}

}  // namespace

PlantedFact PlantedFactOf(int64_t window) {
  const std::string_view city = kCities[static_cast<size_t>(window) % kCities.size()];
  const int64_t code = kFirstCode + (window + 1) % kNumCodes * kCodeStep % kNumCodes;
  return {.sentence = fmt::format(" The secret code of {} is {}.", city, code),
          .question =
              fmt::format("\n\nWhat is the secret code of {0}? The secret code of {0} is", city),
          .answer = fmt::format(" {}", code)};
}

int64_t PlantedPlace(int64_t window, int64_t num_windows, int64_t prompt_tokens) {
  const int64_t steps = std::max<int64_t>(num_windows - 1, 1);
  return prompt_tokens * (10 * steps + 75 * window) / (100 * steps);
}

absl::StatusOr<std::vector<EvalWindow>> PlantFacts(std::vector<EvalWindow> windows,
                                                   PlantedQuestion question,
                                                   const TokenizeText& tokenize) {
  for (int64_t i = 0; i < std::ssize(windows); ++i) {
    EvalWindow& window = windows[static_cast<size_t>(i)];
    ASSIGN_OR_RETURN(const FactTokens fact, TokensOf(PlantedFactOf(i), tokenize));
    const int64_t place = PlantedPlace(i, std::ssize(windows), std::ssize(window.prompt));
    const absl::Status planted = Plant(fact, place, question, window);
    if (!planted.ok()) return Annotate(planted, window.name);
  }
  return windows;
}

}  // namespace tandem
