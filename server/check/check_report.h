#pragma once

#include <string>

#include "server/check/check_deployment.h"

namespace tandem {

// For people: findings last, and below them one line that says whether all is well.
std::string CheckText(const CheckReport& report);
// The same as one JSON object, whose fields docs/configuration.md explains. Sizes are in bytes.
std::string CheckJson(const CheckReport& report);

}  // namespace tandem
