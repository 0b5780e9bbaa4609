#pragma once

#include <string>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// Why one request went where it went, for a person: every decision with its candidates, then what
// came true, as a table and as a picture `columns` wide.
std::string ExplanationText(const v1::RequestExplanation& request, int columns);

// One line for each request.
std::string ExplanationList(const v1::ExplainResponse& response);

}  // namespace tandem
