#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// A range of bytes of a text, and whether the pattern matched there. The parts of one search are
// adjacent and cover the text.
struct MatchPart {
  size_t begin;
  size_t end;
  bool matched;
};

// A compiled pattern of a tokenizer.json. Immutable and thread-safe.
class Regex {
 public:
  // Compiles a pattern. UNIMPLEMENTED for syntax that regex_syntax.h refuses or PCRE2 cannot
  // compile.
  static absl::StatusOr<std::unique_ptr<const Regex>> Compile(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Splits `text`, which must be well-formed UTF-8, into parts that match and parts that do not,
  // and appends them. RESOURCE_EXHAUSTED at the match limit.
  absl::Status FindAll(std::string_view text, std::vector<MatchPart>& parts) const;

 private:
  struct Program;
  explicit Regex(std::unique_ptr<Program> program);

  const std::unique_ptr<Program> program_;
};

}  // namespace tandem
