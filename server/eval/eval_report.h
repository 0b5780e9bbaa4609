#pragma once

#include <string>

#include "server/eval/eval_result.h"

namespace tandem {

// What an evaluation found, for the terminal: the totals, then a line for each window.
std::string EvalTables(const EvalResult& result);

// The same with all digits as one JSON object, for tools.
std::string EvalJson(const EvalResult& result);

// The same as an HTML page that loads nothing else, with plots of the windows.
std::string EvalPage(const EvalResult& result);

}  // namespace tandem
