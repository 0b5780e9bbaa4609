#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/eval/eval_windows.h"

namespace tandem {

// Where the question about a planted fact stands. kKnown: at the end of the prompt, whose last
// tokens attend to the fact during prefill. kLater: at the beginning of the output, so that nothing
// in the prompt shows which fact matters.
enum class PlantedQuestion : uint8_t { kKnown, kLater };

// The values of the flag --planted.
inline const std::map<std::string, PlantedQuestion> kPlantedQuestions = {
    {"known", PlantedQuestion::kKnown}, {"later", PlantedQuestion::kLater}};

// A fact that no model can know beforehand. The question and the answer begin with what separates
// them from the text before.
struct PlantedFact {
  std::string sentence;
  std::string question;  // ends with the beginning of the sentence that answers
  std::string answer;    // the rest of that sentence: a code of five digits
};

// The fact of the window with that index, the same in every run. The codes of the first 90,000
// windows differ.
PlantedFact PlantedFactOf(int64_t window);

// Where the fact begins, as an index of the prompt: from 10% of the prompt in the first window to
// 85% in the last one, in even steps.
int64_t PlantedPlace(int64_t window, int64_t num_windows, int64_t prompt_tokens);

// The windows with a fact planted into each prompt, between tokens of the text. The prompt keeps
// its number of tokens, so the last tokens of the text are dropped. The output becomes the answer,
// after the question where that is asked later. INVALID_ARGUMENT when a prompt has no room for the
// fact at its place; errors of `tokenize`.
absl::StatusOr<std::vector<EvalWindow>> PlantFacts(std::vector<EvalWindow> windows,
                                                   PlantedQuestion question,
                                                   const TokenizeText& tokenize);

}  // namespace tandem
