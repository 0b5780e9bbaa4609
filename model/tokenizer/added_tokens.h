#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/byte_range.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {

// A token outside the BPE model, which is cut out of the text before any other step.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // matches only where no letter or digit is adjacent
  bool lstrip = false;       // the match includes the white space before it
  bool rstrip = false;
  bool normalized = false;  // searched in the normalized text instead of the given text
  bool special = false;     // left out of decoded text
  bool control = false;     // never found in what came from the input (Tokenizer::EncodeParts)
  std::string text;         // the string that is searched for and that the decoder receives
};

// A range of text that either is one added token (then `id` is present) or contains none.
struct AddedTokenPart {
  size_t begin;
  size_t end;
  std::optional<int32_t> id;
};

// The added_tokens of a tokenizer.json. Immutable and thread-safe.
class AddedTokens {
 public:
  // Parses `value`, the field added_tokens of a tokenizer.json; null stands for none.
  static absl::StatusOr<AddedTokens> FromJson(const nlohmann::json* value, int32_t id_limit,
                                              const Normalizer& normalizer);

  enum class Stage : uint8_t { kAsGiven, kNormalized };
  // Splits `text` into parts. The leftmost match wins, and of matches at one position the longest.
  // The parts cover `text` in order, except that a token that strips may overlap an adjacent token
  // of white space. No byte of `input`, sorted ranges of `text`, belongs to a control token, but
  // for white space that it strips.
  std::vector<AddedTokenPart> Find(std::string_view text, Stage stage, SpecialTokens special_tokens,
                                   std::span<const ByteRange> input = {}) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  // A trie over bytes; node 0 is the root.
  class Trie {
   public:
    void Insert(std::string_view text, size_t token);
    struct Match {
      size_t begin;
      size_t end;
      size_t token;
    };
    // `allows` decides whether a match that was found counts.
    template <typename Allows>
    std::optional<Match> FindFrom(std::string_view text, size_t from, const Allows& allows) const;

   private:
    template <typename Allows>
    std::optional<Match> LongestAt(std::string_view text, size_t begin, const Allows& allows) const;

    absl::flat_hash_map<uint64_t, uint32_t> edges_;  // (node << 8 | byte) -> node
    absl::flat_hash_map<uint32_t, size_t> ends_;     // node -> token
    uint32_t num_nodes_ = 1;
    std::array<bool, 256> starts_ = {};
  };

  std::vector<AddedToken> tokens_;
  Trie as_given_;
  Trie normalized_;
};

}  // namespace tandem
