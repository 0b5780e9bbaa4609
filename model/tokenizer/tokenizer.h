#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/text_part.h"

namespace tandem {

// Whether special tokens in the text become their ids, and whether the tokenizer's own template
// (such as a leading BOS) is added.
enum class SpecialTokens : uint8_t { kParse, kAsText };
enum class Template : uint8_t { kAdd, kOmit };
enum class SkipSpecial : uint8_t { kNo, kYes };

struct EncodeOptions {
  SpecialTokens special_tokens = SpecialTokens::kParse;
  Template add_template = Template::kAdd;
};

// The text of a stream of ids. Thread: one at a time. The tokenizer must outlive it.
class TextStream {
 public:
  virtual ~TextStream() = default;

  // Returns the text that is final after `id`: whole characters, possibly none. An id without a
  // token adds nothing, because models pad their vocabularies.
  virtual std::string Push(int32_t id) = 0;
  // Returns the text that was held back. No more ids may be pushed afterwards.
  virtual std::string Finish() = 0;
};

// Text to token ids and back, as the HuggingFace `tokenizers` library does for the same
// tokenizer.json. Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ill-formed UTF-8 is read as U+FFFD (base/utf8.h). RESOURCE_EXHAUSTED when a pattern hits its
  // match limit.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                                      const EncodeOptions& options) const = 0;
  // Encodes the concatenation of `parts` (ChatTemplate::Render) as one text: the same ids as
  // Encode, except that no byte of a part from the input belongs to a control token. Control tokens
  // are the special added tokens and all others that hold a punctuation character or a symbol, such
  // as <think>; added tokens of letters, digits and white space alone are found in every part.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeParts(std::span<const TextPart> parts,
                                                           const EncodeOptions& options) const = 0;
  // The text of all `ids`: well-formed UTF-8, in which incomplete characters become U+FFFD.
  // INVALID_ARGUMENT for an id outside [0, vocab_size).
  virtual absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids,
                                             SkipSpecial skip) const = 0;
  // Starts to decode in pieces. The concatenated pieces equal Decode of all ids.
  virtual std::unique_ptr<TextStream> StartText(SkipSpecial skip) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // The most bytes of text that one token of Encode can stand for, so that a text of that many
  // times `n` bytes has at least `n` tokens. Nothing for tokenizers that may leave text out.
  virtual std::optional<size_t> MaxBytesPerToken() const = 0;
  // One more than the largest id that has a token.
  virtual int32_t vocab_size() const = 0;
  // The id of exactly this token string, special or not.
  virtual std::optional<int32_t> TokenId(std::string_view token) const = 0;
  // The token with that id as the vocabulary spells it, such as "Ġthe" or "<0x0A>"; empty where
  // there is none. Valid as long as the tokenizer.
  virtual std::string_view Spelling(int32_t id) const = 0;
};

// Parses a tokenizer.json. Accepts any bytes: INVALID_ARGUMENT for text that is not such a file,
// UNIMPLEMENTED for a field or value that this build does not support, with those that it does.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(std::string_view json);

// Loads `directory`/tokenizer.json. NOT_FOUND when it is missing; errors name the path.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory);

}  // namespace tandem
