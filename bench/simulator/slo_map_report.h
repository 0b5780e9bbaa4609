#pragma once

#include <string>
#include <vector>

#include "bench/simulator/slo_map.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::simulator {

// One line: under how many pairs of objectives each adapting strategy wins, ties and loses.
std::string LineOf(const SloMap& map);

// The plan, and of every cell the shares of good requests, the winner and the comparisons.
nlohmann::ordered_json SloMapJson(const SloMapPlan& plan, const std::vector<SloMap>& maps);
// Tables of the winners and of the margins.
std::string SloMapMarkdown(const SloMapPlan& plan, const std::vector<SloMap>& maps);
// Heat maps of the same, as a page that needs no other file.
std::string SloMapHtml(const SloMapPlan& plan, const std::vector<SloMap>& maps);

}  // namespace tandem::simulator
