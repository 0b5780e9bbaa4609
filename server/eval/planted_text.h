#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/eval/eval_windows.h"

namespace tandem {

// Where the question about a planted fact is. At the end of the prompt, the attention of its last tokens shows
// which fact matters; at the beginning of the output, nothing in the prompt does.
enum class PlantedQuestion : uint8_t { kKnown, kLater };

// What --planted takes.
inline const std::map<std::string, PlantedQuestion> kPlantedQuestions = {
    {"known", PlantedQuestion::kKnown}, {"later", PlantedQuestion::kLater}};

// A fact that no model knows beforehand. Each text but the first begins with what separates it from the
// text before it.
struct PlantedFact {
  std::string sentence;
  std::string question;  // with the beginning of the answer's sentence
  std::string answer;    // how that sentence goes on: a code of five digits
};

// The fact of the window with that index, the same in every run. The codes of the first 90,000 windows
// differ.
PlantedFact PlantedFactOf(int64_t window);

// Where the fact begins, as an index of the prompt: from 10% of the prompt in the first window to 85% in
// the last one, in even steps.
int64_t PlantedPlace(int64_t window, int64_t num_windows, int64_t prompt_tokens);

// The windows with a fact planted into each prompt, between tokens of the text. The prompt keeps its
// number of tokens, for which the last ones of the text are dropped; the output becomes the answer, behind
// the question where that comes later. INVALID_ARGUMENT when a prompt has no room behind the fact's
// place; errors of `tokenize`.
absl::StatusOr<std::vector<EvalWindow>> PlantFacts(std::vector<EvalWindow> windows,
                                                   PlantedQuestion question,
                                                   const TokenizeText& tokenize);

}  // namespace tandem
