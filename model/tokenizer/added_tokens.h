#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {

// A token beside the model's own, found in the text before anything else happens to it.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // only where no letter or digit is next to it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalized text rather than in the text as given
  bool special = false;     // controls the model; left out of decoded text
  std::string text;         // what is looked for, and what the decoder is given
};

// A stretch of text that is an added token, or one that is none.
struct AddedTokenPart {
  size_t begin;
  size_t end;
  std::optional<int32_t> id;
};

// The added_tokens of a tokenizer.json. Immutable and thread-safe.
class AddedTokens {
 public:
  // `value` is the field added_tokens; null stands for none.
  static absl::StatusOr<AddedTokens> FromJson(const nlohmann::json* value, int32_t id_limit,
                                              const Normalizer& normalizer);

  enum class Stage : uint8_t { kAsGiven, kNormalized };
  // The parts of `text`: at each place the longest token wins, leftmost first. They cover it in
  // order, but a token that strips may reach over a token of white space next to it.
  std::vector<AddedTokenPart> Find(std::string_view text, Stage stage,
                                   SpecialTokens special_tokens) const;

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
    std::optional<Match> FindFrom(std::string_view text, size_t from) const;

   private:
    std::optional<Match> LongestAt(std::string_view text, size_t begin) const;

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
