#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

constexpr size_t kMaxContentBytes = 4096;

bool IsAloneAsWord(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && IsWord(LastCharacter(text.substr(0, begin)).code_point);
  const bool word_after = end < text.size() && IsWord(FirstCharacter(text.substr(end)).code_point);
  return !word_before && !word_after;
}

size_t SkipSpaceBefore(std::string_view text, size_t begin, size_t floor) {
  while (begin > floor) {
    const Character last = LastCharacter(text.substr(0, begin));
    if (!IsWhitespace(last.code_point)) break;
    begin -= last.length;
  }
  return begin;
}

size_t SkipSpaceAfter(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Character first = FirstCharacter(text.substr(end));
    if (!IsWhitespace(first.code_point)) break;
    end += first.length;
  }
  return end;
}

// Whether the text has only characters of words and white space, which ▁ stands for in some
// vocabularies.
bool IsPlain(std::string_view text) {
  constexpr int32_t kSpaceMark = 0x2581;
  while (!text.empty()) {
    const Character first = FirstCharacter(text);
    const int32_t c = first.code_point;
    if (!IsWord(c) && !IsWhitespace(c) && c != kSpaceMark) return false;
    text.remove_prefix(first.length);
  }
  return true;
}

absl::StatusOr<AddedToken> ParseToken(const JsonFields& fields, int32_t id_limit) {
  RETURN_IF_ERROR(fields.RefuseOthers(
      {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedToken token;
  ASSIGN_OR_RETURN(token.id, fields.Index("id", id_limit));
  ASSIGN_OR_RETURN(token.content, fields.String("content"));
  ASSIGN_OR_RETURN(token.single_word, fields.Bool("single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, fields.Bool("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, fields.Bool("rstrip", false));
  ASSIGN_OR_RETURN(token.special, fields.Bool("special", false));
  ASSIGN_OR_RETURN(token.normalized, fields.Bool("normalized", !token.special));
  token.control = token.special || !IsPlain(token.content);
  if (token.content.size() > kMaxContentBytes) {
    return Unimplemented("{}: longer than {} bytes", fields.PathOf("content"), kMaxContentBytes);
  }
  return token;
}

}  // namespace

void AddedTokens::Trie::Insert(std::string_view text, size_t token) {
  uint32_t node = 0;
  for (const char c : text) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    const auto [edge, added] = edges_.try_emplace(key, num_nodes_);
    if (added) ++num_nodes_;
    node = edge->second;
  }
  if (node == 0) return;
  starts_[static_cast<uint8_t>(text.front())] = true;
  ends_.try_emplace(node, token);
}

template <typename Allows>
std::optional<AddedTokens::Trie::Match> AddedTokens::Trie::LongestAt(std::string_view text,
                                                                     size_t begin,
                                                                     const Allows& allows) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[at]));
    if (edge == edges_.end()) break;
    node = edge->second;
    const auto end = ends_.find(node);
    if (end == ends_.end()) continue;
    const Match match{begin, at + 1, end->second};
    if (allows(match)) longest = match;
  }
  return longest;
}

template <typename Allows>
std::optional<AddedTokens::Trie::Match> AddedTokens::Trie::FindFrom(std::string_view text,
                                                                    size_t from,
                                                                    const Allows& allows) const {
  if (ends_.empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    if (const std::optional<Match> match = LongestAt(text, begin, allows)) return match;
  }
  return std::nullopt;
}

absl::StatusOr<AddedTokens> AddedTokens::FromJson(const nlohmann::json* value, int32_t id_limit,
                                                  const Normalizer& normalizer) {
  AddedTokens added;
  if (value == nullptr) return added;
  if (!value->is_array()) return InvalidArgument("added_tokens: expected an array");
  for (size_t i = 0; i < value->size(); ++i) {
    ASSIGN_OR_RETURN(const JsonFields fields,
                     JsonFields::Of((*value)[i], fmt::format("added_tokens[{}]", i)));
    ASSIGN_OR_RETURN(AddedToken token, ParseToken(fields, id_limit));
    if (token.normalized) {
      ASSIGN_OR_RETURN(Normalizer::Result content, normalizer.Apply(token.content));
      token.text = std::move(content.text);
      if (token.text.empty() && !token.content.empty()) {
        return Unimplemented("{}: nothing is left of {} after normalization",
                             fields.PathOf("content"), token.content);
      }
      added.normalized_.Insert(token.text, added.tokens_.size());
    } else {
      token.text = token.content;
      added.as_given_.Insert(token.content, added.tokens_.size());
    }
    added.tokens_.push_back(std::move(token));
  }
  return added;
}

std::vector<AddedTokenPart> AddedTokens::Find(std::string_view text, Stage stage,
                                              SpecialTokens special_tokens,
                                              std::span<const ByteRange> input) const {
  const Trie& trie = stage == Stage::kAsGiven ? as_given_ : normalized_;
  const auto allows = [&](const Trie::Match& match) {
    return input.empty() || !tokens_[match.token].control ||
           !Overlaps(input, match.begin, match.end);
  };
  std::vector<AddedTokenPart> parts;
  size_t covered = 0;
  size_t from = 0;
  while (const std::optional<Trie::Match> match = trie.FindFrom(text, from, allows)) {
    from = match->end;
    const AddedToken& token = tokens_[match->token];
    if (token.special && special_tokens == SpecialTokens::kAsText) continue;
    if (token.single_word && !IsAloneAsWord(text, match->begin, match->end)) continue;
    const size_t begin = token.lstrip
                             ? std::max(SkipSpaceBefore(text, match->begin, covered), covered)
                             : match->begin;
    // The added token before this one may have included the white space between them already.
    const size_t end =
        token.rstrip ? SkipSpaceAfter(text, std::max(match->end, covered)) : match->end;
    if (covered < begin) parts.push_back({covered, begin, std::nullopt});
    if (begin < end) parts.push_back({begin, end, token.id});
    covered = end;
  }
  if (covered < text.size()) parts.push_back({covered, text.size(), std::nullopt});
  return parts;
}

}  // namespace tandem
