#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// kError: what was asked for would not start or not serve. kWarning: it would, and may not be meant so.
// kNote: what one may want to know.
enum class Severity : uint8_t { kNote, kWarning, kError };

std::string_view Name(Severity severity);  // "note"

struct Finding {
  Severity severity = Severity::kNote;
  std::string part;  // whom it concerns, as "router" or "prefill-0, decode-0"; empty: all
  std::string text;  // a sentence with the value at fault and what to do
};

// What a check found. Of several parts with the same finding one is made that names them all.
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
