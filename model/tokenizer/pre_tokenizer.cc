#include "model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/metaspace.h"
#include "model/tokenizer/overload.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

// The splitting pattern of GPT-2, which ByteLevel applies unless use_regex is false.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Matches words (UTS 18, annex C) and runs of all other characters except white space.
constexpr std::string_view kWordsPattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|)"
    R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

// Joins each maximal run of adjacent parts for which `joins` returns true into one part.
template <typename Joins>
void JoinNeighbours(std::vector<MatchPart>& parts, Joins joins) {
  size_t kept = 0;
  bool previous = false;  // whether the previous part matched
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool matched = parts[i].matched;
    if (kept > 0 && joins(previous, matched)) {
      parts[kept - 1].end = parts[i].end;
    } else {
      parts[kept++] = parts[i];
    }
    previous = matched;
  }
  parts.resize(kept);
}

void JoinMatchesWithNext(std::vector<MatchPart>& parts) {
  std::reverse(parts.begin(), parts.end());
  size_t kept = 0;
  bool previous = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool matched = parts[i].matched;
    if (kept > 0 && matched && !previous) {
      parts[kept - 1].begin = parts[i].begin;
    } else {
      parts[kept++] = parts[i];
    }
    previous = matched;
  }
  parts.resize(kept);
  std::reverse(parts.begin(), parts.end());
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const nlohmann::json* value, std::string path) {
  PreTokenizer pre_tokenizer;
  if (value != nullptr) RETURN_IF_ERROR(pre_tokenizer.Append(*value, path, 0));
  return pre_tokenizer;
}

absl::Status PreTokenizer::Append(const nlohmann::json& value, const std::string& path, int depth) {
  RETURN_IF_ERROR(CheckDepth(depth, path));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, path));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (byte_level_ && type != "Sequence") {
    if (type == "ByteLevel" || type == "Metaspace") {
      return Unimplemented("{}: {} after ByteLevel is not supported", path, type);
    }
    if (!std::exchange(written_bytes_, true)) steps_.emplace_back(std::in_place_type<WriteBytes>);
  }
  if (type == "ByteLevel") return AppendByteLevel(fields);
  if (type == "Metaspace") return AppendMetaspace(fields);
  if (type == "Split") return AppendSplit(fields);
  if (type != "Sequence") return AppendCharacterClass(fields, type);
  RETURN_IF_ERROR(fields.RefuseOthers({"type", "pretokenizers"}));
  ASSIGN_OR_RETURN(const nlohmann::json* items, fields.Array("pretokenizers"));
  for (size_t i = 0; i < items->size(); ++i) {
    RETURN_IF_ERROR(Append((*items)[i], fmt::format("{}.pretokenizers[{}]", path, i), depth + 1));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::AppendByteLevel(const JsonFields& fields) {
  // trim_offsets concerns offsets into the text, which this tokenizer does not compute.
  RETURN_IF_ERROR(fields.RefuseOthers({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
  if (add_prefix_space) steps_.push_back(Prefix{" ", Prefix::Where::kEveryPiece});
  if (use_regex) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Matcher> matcher, Matcher::ForRegex(kGpt2Pattern));
    steps_.push_back(Split{std::move(matcher), Behavior::kIsolated, false});
  }
  byte_level_ = true;
  return absl::OkStatus();
}

absl::Status PreTokenizer::AppendMetaspace(const JsonFields& fields) {
  using Scheme = Metaspace::PrependScheme;
  ASSIGN_OR_RETURN(const Metaspace metaspace, Metaspace::FromJson(fields));
  steps_.push_back(ReplaceSpaces{metaspace.mark});
  if (metaspace.scheme != Scheme::kNever) {
    const bool first = metaspace.scheme == Scheme::kFirst;
    steps_.push_back(
        Prefix{metaspace.mark, first ? Prefix::Where::kFirstPiece : Prefix::Where::kEveryPiece});
  }
  if (metaspace.split) {
    steps_.push_back(Split{Matcher::ForString(metaspace.mark), Behavior::kMergedWithNext, false});
  }
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizer::Behavior> PreTokenizer::ParseBehavior(const JsonFields& fields,
                                                                   std::string_view fallback) {
  ASSIGN_OR_RETURN(const std::string behavior, fields.String("behavior", fallback));
  if (behavior == "Isolated") return Behavior::kIsolated;
  if (behavior == "Removed") return Behavior::kRemoved;
  if (behavior == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return Behavior::kMergedWithNext;
  if (behavior == "Contiguous") return Behavior::kContiguous;
  return Unimplemented(
      "{}: {} is not supported; supported: Isolated, Removed, MergedWithPrevious, MergedWithNext, "
      "Contiguous",
      fields.PathOf("behavior"), behavior);
}

absl::Status PreTokenizer::AppendSplit(const JsonFields& fields) {
  RETURN_IF_ERROR(fields.RefuseOthers({"type", "pattern", "behavior", "invert"}));
  ASSIGN_OR_RETURN(const JsonFields pattern, fields.Object("pattern"));
  ASSIGN_OR_RETURN(std::shared_ptr<const Matcher> matcher, Matcher::FromJson(pattern));
  ASSIGN_OR_RETURN(const Behavior behavior, ParseBehavior(fields, ""));
  ASSIGN_OR_RETURN(const bool invert, fields.Bool("invert", false));
  steps_.push_back(Split{std::move(matcher), behavior, invert});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AppendCharacterClass(const JsonFields& fields, const std::string& type) {
  if (type == "Digits") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "individual_digits"}));
    ASSIGN_OR_RETURN(const bool individual, fields.Bool("individual_digits", false));
    steps_.push_back(Split{Matcher::ForCharacters(IsNumeric),
                           individual ? Behavior::kIsolated : Behavior::kContiguous, false});
    return absl::OkStatus();
  }
  if (type == "Punctuation") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "behavior"}));
    ASSIGN_OR_RETURN(const Behavior behavior, ParseBehavior(fields, "Isolated"));
    steps_.push_back(Split{Matcher::ForCharacters(IsPunctuation), behavior, false});
    return absl::OkStatus();
  }
  if (type == "WhitespaceSplit") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type"}));
    steps_.push_back(Split{Matcher::ForCharacters(IsWhitespace), Behavior::kRemoved, false});
    return absl::OkStatus();
  }
  if (type == "Whitespace") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type"}));
    ASSIGN_OR_RETURN(std::shared_ptr<const Matcher> matcher, Matcher::ForRegex(kWordsPattern));
    steps_.push_back(Split{std::move(matcher), Behavior::kRemoved, true});
    return absl::OkStatus();
  }
  return Unimplemented(
      "{}: {} is not supported; supported: ByteLevel, Metaspace, Split, Digits, Punctuation, "
      "Whitespace, WhitespaceSplit, Sequence",
      fields.PathOf("type"), type);
}

bool PreTokenizer::DropsText() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const Split* const split = std::get_if<Split>(&step);
    return split != nullptr && split->behavior == Behavior::kRemoved;
  });
}

void PreTokenizer::Arrange(std::vector<MatchPart>& parts, const Split& split) {
  if (split.invert) {
    for (MatchPart& part : parts) part.matched = !part.matched;
  }
  switch (split.behavior) {
    case Behavior::kIsolated:
      return;
    case Behavior::kRemoved:
      std::erase_if(parts, [](const MatchPart& part) { return part.matched; });
      return;
    case Behavior::kMergedWithPrevious:
      JoinNeighbours(parts, [](bool previous, bool matched) { return matched && !previous; });
      return;
    case Behavior::kMergedWithNext:
      JoinMatchesWithNext(parts);
      return;
    case Behavior::kContiguous:
      JoinNeighbours(parts, [](bool previous, bool matched) { return matched == previous; });
      return;
  }
}

absl::Status PreTokenizer::RunStep(const Step& step, Piece piece, TextArena& arena,
                                   std::vector<Piece>& out) {
  return std::visit(Overload{
                        [&](const Split& split) {
                          std::vector<MatchPart> parts;
                          RETURN_IF_ERROR(split.matcher->FindAll(piece.text, parts));
                          Arrange(parts, split);
                          for (const MatchPart& part : parts) {
                            if (part.begin == part.end) continue;
                            out.push_back({piece.text.substr(part.begin, part.end - part.begin),
                                           piece.at_start && part.begin == 0});
                          }
                          return absl::OkStatus();
                        },
                        [&](const Prefix& prefix) {
                          const bool wanted =
                              prefix.where == Prefix::Where::kEveryPiece || piece.at_start;
                          if (wanted && piece.text.substr(0, prefix.text.size()) != prefix.text) {
                            piece.text = arena.Keep(prefix.text + std::string(piece.text));
                          }
                          out.push_back(piece);
                          return absl::OkStatus();
                        },
                        [&](const ReplaceSpaces& spaces) {
                          std::string text;
                          text.reserve(piece.text.size() * 2);
                          for (const char c : piece.text) {
                            if (c == ' ') {
                              text.append(spaces.replacement);
                            } else {
                              text.push_back(c);
                            }
                          }
                          out.push_back({arena.Keep(std::move(text)), piece.at_start});
                          return absl::OkStatus();
                        },
                        [&](const WriteBytes&) {
                          std::string text;
                          text.reserve(piece.text.size() * 2);
                          for (const char byte : piece.text) {
                            text += ByteLevelCharacters()[static_cast<uint8_t>(byte)];
                          }
                          out.push_back({arena.Keep(std::move(text)), piece.at_start});
                          return absl::OkStatus();
                        },
                    },
                    step);
}

absl::Status PreTokenizer::Run(Piece piece, TextArena& arena, std::vector<Piece>& words) const {
  if (piece.text.empty()) return absl::OkStatus();
  std::vector<Piece> pieces = {piece};
  std::vector<Piece> next;
  for (const Step& step : steps_) {
    next.clear();
    for (const Piece& part : pieces) RETURN_IF_ERROR(RunStep(step, part, arena, next));
    pieces.swap(next);
  }
  if (written_bytes_) {
    for (Piece& part : pieces) part.text = arena.Keep(ByteLevelBytes(part.text).value());
  }
  words.insert(words.end(), pieces.begin(), pieces.end());
  return absl::OkStatus();
}

}  // namespace tandem
