#pragma once

#include <string>

namespace tandem::loadgen {

// A page that needs no other file: a heading, figures (HTML) and a report in Markdown as it is.
std::string ReportPage(const std::string& title, const std::string& figures,
                       const std::string& markdown);

}  // namespace tandem::loadgen
