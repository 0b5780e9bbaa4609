#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/post_processor.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {

// The parts of a tokenizer.json, in the order in which a text passes through them.
struct TokenizerParts {
  AddedTokens added_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const Bpe> model;
  PostProcessor post_processor;
  Decoder decoder;
};

// A Tokenizer made of the parts of a tokenizer.json. Added tokens are cut out of the given text;
// the rest is normalized; further added tokens are cut out of the normalized text; the rest is
// split into words; and BPE turns each word into ids.
class TokenizerPipeline : public Tokenizer {
 public:
  // The ids of the parts must be consistent, which the parser checks.
  explicit TokenizerPipeline(TokenizerParts parts);

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const override;
  absl::StatusOr<std::vector<int32_t>> EncodeParts(std::span<const TextPart> parts,
                                                   const EncodeOptions& options) const override;
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids,
                                     SkipSpecial skip) const override;
  std::unique_ptr<TextStream> StartText(SkipSpecial skip) const override;
  bool IsSpecial(int32_t id) const override;
  std::optional<size_t> MaxBytesPerToken() const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(entries_.size()); }
  std::optional<int32_t> TokenId(std::string_view token) const override;
  std::string_view Spelling(int32_t id) const override;

 private:
  struct Entry {
    const std::string* token = nullptr;  // null for an unused id
    bool special = false;
  };
  class Stream;
  struct Encoding;

  // Encodes well-formed text. `input` are the ranges of it that came from a request.
  absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text,
                                                  std::span<const ByteRange> input,
                                                  const EncodeOptions& options) const;
  absl::Status EncodeGiven(Piece piece, std::span<const ByteRange> input, Encoding& encoding) const;
  absl::Status EncodeNormalized(Piece piece, std::span<const ByteRange> input,
                                Encoding& encoding) const;

  const TokenizerParts parts_;
  std::vector<Entry> entries_;  // indexed by token id
  absl::flat_hash_map<std::string, int32_t> added_ids_;
};

}  // namespace tandem
