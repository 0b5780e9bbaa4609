#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/byte_range.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/matcher.h"
#include "model/tokenizer/unicode.h"

namespace tandem {

// The normalizer of a tokenizer.json: a chain of rewrites of one piece of text.
class Normalizer {
 public:
  // Parses `value`, the normalizer at `path` of a tokenizer.json; null stands for none.
  static absl::StatusOr<Normalizer> FromJson(const nlohmann::json* value, std::string path);

  bool empty() const { return steps_.empty(); }
  // How many times shorter, in bytes, a text may become at most. Nothing when a step may remove any
  // amount of text.
  std::optional<size_t> MaxShrink() const;

  struct Result {
    std::string text;
    bool lost_start = false;  // whether characters at the start were removed
    std::vector<ByteRange> input;
  };
  // Runs all steps. RESOURCE_EXHAUSTED when a pattern hits its match limit or the text grows too
  // large. `input` are the sorted ranges of the text that came from a request; the result has them
  // as ranges of its own text. Where a step changes text across the border of a range, they become
  // all of the text.
  absl::StatusOr<Result> Apply(std::string_view text, std::span<const ByteRange> input = {}) const;

 private:
  struct Lowercase {};
  struct Prepend {
    std::string text;
  };
  struct Replace {
    std::shared_ptr<const Matcher> matcher;
    std::string content;
  };
  struct Strip {
    bool left;
    bool right;
  };
  using Step = std::variant<NormalForm, Lowercase, Prepend, Replace, Strip>;

  absl::Status Append(const nlohmann::json& value, const std::string& path, int depth);
  static absl::StatusOr<Step> ParseStep(const JsonFields& fields, const std::string& type);
  static absl::Status ApplyStep(const Step& step, Result& result);
  static absl::StatusOr<std::vector<ByteRange>> MapInput(const Step& step, const Result& before,
                                                         const Result& after);

  std::vector<Step> steps_;
};

}  // namespace tandem
