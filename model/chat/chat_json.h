#pragma once

#include "nlohmann/json.hpp"

namespace tandem {

// JSON whose objects keep the order of their fields, which templates print.
using ChatJson = nlohmann::ordered_json;

}  // namespace tandem
