#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/regex.h"

namespace tandem {

// The search of a Split or Replace of a tokenizer.json: a pattern, a fixed string or a class of
// characters. Immutable and thread-safe.
class Matcher {
 public:
  using CharacterClass = bool (*)(int32_t code_point);

  // Parses the object {"Regex": "..."} or {"String": "..."}.
  static absl::StatusOr<std::shared_ptr<const Matcher>> FromJson(const JsonFields& fields);
  static absl::StatusOr<std::shared_ptr<const Matcher>> ForRegex(std::string_view pattern);
  // Matches the fixed string `text`, which must not be empty.
  static std::shared_ptr<const Matcher> ForString(std::string text);
  // Matches each single character of the class.
  static std::shared_ptr<const Matcher> ForCharacters(CharacterClass in_class);

  // The length of every match in bytes; nothing where matches differ in length.
  std::optional<size_t> MatchBytes() const;

  // Splits `text`, which must be well-formed UTF-8, into parts that match and parts that do not,
  // and appends them. The parts cover the text in order.
  absl::Status FindAll(std::string_view text, std::vector<MatchPart>& parts) const;

 private:
  using Target = std::variant<std::unique_ptr<const Regex>, std::string, CharacterClass>;
  explicit Matcher(Target target) : target_(std::move(target)) {}

  const Target target_;
};

struct Replaced {
  std::string text;
  bool lost_start;  // whether the first character was removed
};
// Returns `text` with every match replaced by `content`. RESOURCE_EXHAUSTED above 64 MiB of growth.
absl::StatusOr<Replaced> ReplaceMatches(const Matcher& matcher, std::string_view text,
                                        std::string_view content);

}  // namespace tandem
