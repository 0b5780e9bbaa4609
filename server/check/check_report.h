#pragma once

#include <string>

#include "server/check/check_deployment.h"

namespace tandem {

// The report for people: the findings come last, and below them one line that says whether all is
// well.
std::string CheckText(const CheckReport& report);
// The report as one JSON object, whose fields docs/configuration.md explains. Sizes are in bytes.
std::string CheckJson(const CheckReport& report);

}  // namespace tandem
