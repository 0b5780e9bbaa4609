#include "router/request/best_choices.h"

#include <algorithm>
#include <utility>

namespace tandem {

std::vector<KeptChoice> BestChoices(std::vector<KeptChoice> choices, int32_t n) {
  std::stable_sort(choices.begin(), choices.end(), [](const KeptChoice& a, const KeptChoice& b) {
    return a.finish.cumulative_logprob() > b.finish.cumulative_logprob();
  });
  choices.resize(std::min<size_t>(choices.size(), n));
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    choices[i].finish.set_index(index);
    for (v1::Chunk& chunk : choices[i].chunks) chunk.set_index(index);
  }
  return choices;
}

}  // namespace tandem
