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

// The character that stands for each byte in a byte-level BPE vocabulary (GPT-2): printable bytes
// stand for themselves, the others are mapped to U+0100 and above.
const std::array<std::string, 256>& ByteLevelCharacters();
// The bytes that `token` stands for; empty when one of its characters stands for no byte.
std::optional<std::string> ByteLevelBytes(std::string_view token);

// Byte pair encoding of one word: symbols are merged in the order of their ranks, leftmost first,
// in O(n log n). Immutable and thread-safe.
// Source: Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016.
class Bpe {
 public:
  struct Options {
    bool byte_level = false;     // words are bytes, tokens are written in ByteLevelCharacters
    bool byte_fallback = false;  // a character without a token becomes <0xNN> tokens of its bytes
    bool ignore_merges = false;  // a word that is in the vocabulary is not split
    bool fuse_unk = false;       // adjacent unknown characters become one unknown token
    std::optional<std::string> unk_token;
  };
  struct Vocabulary {
    std::vector<std::pair<std::string, int32_t>> tokens;      // distinct strings, distinct ids
    std::vector<std::pair<std::string, std::string>> merges;  // best rank first
  };

  // Builds the encoder of a vocabulary. INVALID_ARGUMENT when a merge or the unknown token is not
  // in the vocabulary.
  static absl::StatusOr<std::unique_ptr<const Bpe>> Create(Vocabulary vocabulary, Options options);

  // Working memory of Encode, reused from word to word.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous;  // index of a symbol, -1 at the end; `next` likewise
      int32_t next;
      bool alive;
    };
    struct Candidate {
      uint32_t rank;
      int32_t position;
      int32_t left_id;  // id of the left symbol when the candidate was pushed
      int32_t right_id;
      int32_t id;  // the merged token
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of `word` (well-formed UTF-8 unless byte-level). A character without token and
  // without fallback appends nothing.
  void Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  // Whether every byte of a word is a byte of one of its tokens: none is left out, and none is part
  // of an unknown token.
  bool CoversAllText() const;

  std::optional<int32_t> Find(std::string_view token) const;  // token as the vocabulary spells it
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
  std::array<int32_t, 256> byte_ids_;  // id of the byte, or of <0xNN> with fallback; -1: none
  std::optional<int32_t> unk_id_;
  // The SentencePiece space mark, present when no merge joins it to a preceding symbol. Then a text
  // without a pre-tokenizer can be split into words that are merged independently.
  std::optional<int32_t> word_start_id_;
};

}  // namespace tandem
