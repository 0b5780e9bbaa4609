#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace tandem {

// The 256 bytes as characters, as byte-level BPE writes them in its vocabulary (GPT-2): printable
// ones as themselves, the others from U+0100 on.
const std::array<std::string, 256>& ByteLevelCharacters();
// The bytes that `token` stands for; empty optional when it has a character that stands for none.
std::optional<std::string> ByteLevelBytes(std::string_view token);

// Byte pair encoding of one word: symbols are merged in the order of their ranks, leftmost first,
// in O(n log n). Immutable and thread-safe.
// Source: Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016.
class Bpe {
 public:
  struct Options {
    bool byte_level = false;     // words are bytes, tokens are written in ByteLevelCharacters
    bool byte_fallback = false;  // a character without a token becomes its bytes' <0xNN> tokens
    bool ignore_merges = false;  // a word that is a token stays one
    bool fuse_unk = false;       // neighbouring unknown characters become one unknown token
    std::optional<std::string> unk_token;
  };
  struct Vocabulary {
    std::vector<std::pair<std::string, int32_t>> tokens;      // distinct strings, distinct ids
    std::vector<std::pair<std::string, std::string>> merges;  // best rank first
  };

  // INVALID_ARGUMENT when a merge or the unknown token is not in the vocabulary.
  static absl::StatusOr<std::unique_ptr<const Bpe>> Create(Vocabulary vocabulary, Options options);

  // Working memory of Encode, reused from word to word.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous;  // indices, -1 at the ends
      int32_t next;
      bool alive;
    };
    struct Candidate {
      uint32_t rank;
      int32_t position;
      int32_t left_id;  // the pair, as it was when this was written down
      int32_t right_id;
      int32_t id;  // what it becomes
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of `word` (well-formed UTF-8 unless byte-level). A character that has no token
  // and no fallback adds nothing.
  void Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  std::optional<int32_t> Find(std::string_view token) const;  // as written in the vocabulary
  const std::vector<std::pair<std::string, int32_t>>& tokens() const { return tokens_; }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  using Index = absl::flat_hash_map<std::string, int32_t>;

  Bpe(Vocabulary vocabulary, Options options);
  absl::Status AddMerges(const std::vector<std::pair<std::string, std::string>>& merges);
  void AddBytes();

  std::optional<int32_t> FindWord(std::string_view word) const;
  void BytesToSymbols(std::string_view word, Scratch& scratch) const;
  void CharactersToSymbols(std::string_view word, Scratch& scratch) const;
  bool FallBackToBytes(std::string_view character, Scratch& scratch) const;
  int32_t EndOfMergeableRun(int32_t begin, const Scratch& scratch) const;
  void PushPair(int32_t left, Scratch& scratch) const;
  void MergeSymbols(int32_t begin, int32_t end, Scratch& scratch) const;

  const Options options_;
  std::vector<std::pair<std::string, int32_t>> tokens_;
  Index index_;                                          // token as written -> id
  absl::flat_hash_map<int32_t, int32_t> character_ids_;  // code point that is a token -> id
  Index byte_index_;                                     // byte-level only: token as bytes -> id
  absl::flat_hash_map<uint64_t, Merge> merges_;
  std::array<int32_t, 256> byte_ids_;  // byte-level: of the byte; fallback: of its <0xNN>; or -1
  std::optional<int32_t> unk_id_;
  // The SentencePiece mark of a space, when no merge joins it to something before it: then a text
  // without a pre-tokenizer falls into words that are merged one by one.
  std::optional<int32_t> word_start_id_;
};

}  // namespace tandem
