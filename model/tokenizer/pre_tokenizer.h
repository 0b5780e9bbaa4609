#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/matcher.h"

namespace tandem {

// Owns the rewritten texts of one Encode call; views into it stay valid as it grows.
class TextArena {
 public:
  std::string_view Keep(std::string text) { return texts_.emplace_back(std::move(text)); }

 private:
  std::deque<std::string> texts_;
};

// A part of a text. `at_start` is true if it begins at the start of the caller's text.
struct Piece {
  std::string_view text;
  bool at_start;
};

// The pre_tokenizer of a tokenizer.json: splits a piece of normalized text into the words that BPE
// encodes one by one.
class PreTokenizer {
 public:
  // Parses `value`, the pre_tokenizer at `path` of a tokenizer.json; null stands for none: the
  // whole piece is one word.
  static absl::StatusOr<PreTokenizer> FromJson(const nlohmann::json* value, std::string path);

  // Whether the words are bytes for byte-level BPE.
  bool byte_level() const { return byte_level_; }
  // Whether the words may leave out some of the text.
  bool DropsText() const;

  // Appends the words of `piece` (none of them empty) to `words`. RESOURCE_EXHAUSTED when a pattern
  // hits its match limit.
  absl::Status Run(Piece piece, TextArena& arena, std::vector<Piece>& words) const;

 private:
  enum class Behavior : uint8_t {
    kIsolated,
    kRemoved,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous
  };
  struct Split {
    std::shared_ptr<const Matcher> matcher;
    Behavior behavior;
    bool invert;
  };
  struct Prefix {  // a text that is prepended to every piece, or to the first, if it is missing
    std::string text;
    enum class Where : uint8_t { kEveryPiece, kFirstPiece } where;
  };
  struct ReplaceSpaces {
    std::string replacement;
  };
  struct WriteBytes {};  // every byte as its character of ByteLevelCharacters
  using Step = std::variant<Split, Prefix, ReplaceSpaces, WriteBytes>;

  absl::Status Append(const nlohmann::json& value, const std::string& path, int depth);
  absl::Status AppendByteLevel(const JsonFields& fields);
  absl::Status AppendMetaspace(const JsonFields& fields);
  absl::Status AppendSplit(const JsonFields& fields);
  absl::Status AppendCharacterClass(const JsonFields& fields, const std::string& type);

  static absl::StatusOr<Behavior> ParseBehavior(const JsonFields& fields,
                                                std::string_view fallback);
  static void Arrange(std::vector<MatchPart>& parts, const Split& split);
  static absl::Status RunStep(const Step& step, Piece piece, TextArena& arena,
                              std::vector<Piece>& out);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  // Whether steps follow ByteLevel. They see the characters that stand for bytes, and Run turns
  // these back into bytes at the end.
  bool written_bytes_ = false;
};

}  // namespace tandem
