#pragma once

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "nlohmann/json.hpp"

namespace tandem {

// Parameters that a schema declares as strings, as (tool, parameter). Only markup of the form
// kTagged needs them, because there "5" may be a text or a number.
using StringParameters = absl::flat_hash_set<std::pair<std::string, std::string>>;
// Finds the string parameters in the tools of a request: OpenAI's form, or any list of {"name",
// "parameters"}. Takes any JSON.
StringParameters StringParametersOf(const nlohmann::ordered_json& tools);

}  // namespace tandem
