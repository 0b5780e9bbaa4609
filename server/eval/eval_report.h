#pragma once

#include <string>

#include "server/eval/eval_result.h"

namespace tandem {

// What an evaluation found, for the terminal: the totals, then a line for each window.
std::string EvalTables(const EvalResult& result);

// The result of an evaluation as one JSON object with all digits, for tools.
std::string EvalJson(const EvalResult& result);

// The result of an evaluation as a self-contained HTML page with plots of the windows.
std::string EvalPage(const EvalResult& result);

}  // namespace tandem
