#pragma once

#include <string>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// Explains to a person why one request was placed where it was: every decision with its candidates,
// then the measured outcome beside the predicted one, as a table and as a picture of `columns`
// columns.
std::string ExplanationText(const v1::RequestExplanation& request, int columns);

// Lists the requests of the response, one line for each.
std::string ExplanationList(const v1::ExplainResponse& response);

}  // namespace tandem
