#pragma once

#include <string>
#include <vector>

#include "bench/simulator/crossover.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::simulator {

// One line: the cell, the route that was taken and its regret.
std::string LineOf(const CrossoverCell& cell);

// The plan, every cell, the regret of all, and per load and prompt the links at which the
// prediction, the choice and the replay change sides.
nlohmann::ordered_json CrossoverJson(const CrossoverPlan& plan,
                                     const std::vector<CrossoverCell>& cells);
// Tables of the same.
std::string CrossoverMarkdown(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells);
// Heat maps of the same, as a page that needs no other file.
std::string CrossoverHtml(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells);

}  // namespace tandem::simulator
