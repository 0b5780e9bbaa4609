#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// kError: the service would not start, or would not serve requests. kWarning: it would, but perhaps
// not as intended. kNote: information.
enum class Severity : uint8_t { kNote, kWarning, kError };

std::string_view Name(Severity severity);  // "note", "warning", "error"

struct Finding {
  Severity severity = Severity::kNote;
  std::string part;  // whom it concerns, as "router" or "prefill-0, decode-0"; empty: all
  std::string text;  // a sentence with the value at fault and what to do
};

// The findings of a check. The same finding about several processes becomes one that names all of
// them.
class Findings {
 public:
  void Add(Severity severity, std::string_view part, std::string text);
  // Adds an error unless `status` is OK; returns whether it is.
  bool Check(std::string_view part, const absl::Status& status);

  const std::vector<Finding>& all() const { return all_; }
  bool has_errors() const;

 private:
  std::vector<Finding> all_;
};

}  // namespace tandem
