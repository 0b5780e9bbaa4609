#include "server/check/findings.h"

#include <algorithm>
#include <utility>

namespace tandem {

std::string_view Name(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "?";
}

void Findings::Add(Severity severity, std::string_view part, std::string text) {
  for (Finding& one : all_) {
    if (one.severity != severity || one.text != text) continue;
    if (!part.empty()) one.part += (one.part.empty() ? "" : ", ") + std::string(part);
    return;
  }
  all_.push_back({.severity = severity, .part = std::string(part), .text = std::move(text)});
}

bool Findings::Check(std::string_view part, const absl::Status& status) {
  if (!status.ok()) Add(Severity::kError, part, std::string(status.message()));
  return status.ok();
}

bool Findings::has_errors() const {
  return std::ranges::any_of(all_,
                             [](const Finding& one) { return one.severity == Severity::kError; });
}

}  // namespace tandem
