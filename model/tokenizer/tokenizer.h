#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Whether special tokens written in the text become their ids, and whether the tokenizer's own
// template (a leading BOS, say) is added.
enum class SpecialTokens : uint8_t { kParse, kAsText };
enum class Template : uint8_t { kAdd, kOmit };
enum class SkipSpecial : uint8_t { kNo, kYes };

struct EncodeOptions {
  SpecialTokens special_tokens = SpecialTokens::kParse;
  Template add_template = Template::kAdd;
};

// The text of ids that come one by one. Thread: one at a time. The tokenizer must outlive it.
class TextStream {
 public:
  virtual ~TextStream() = default;

  // The text that became certain with `id`: whole characters, maybe none. An id without a token
  // (models pad their vocabularies) adds nothing.
  virtual std::string Push(int32_t id) = 0;
  // What was held back. After it nothing more may be pushed.
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
  // The text of `ids`, as a whole: well-formed UTF-8 (incomplete characters become U+FFFD).
  // INVALID_ARGUMENT for an id outside [0, vocab_size).
  virtual absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids,
                                             SkipSpecial skip) const = 0;
  // The same text, piece by piece: the pieces put together equal Decode of all ids.
  virtual std::unique_ptr<TextStream> StartText(SkipSpecial skip) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // One more than the largest id that has a token.
  virtual int32_t vocab_size() const = 0;
  // The id of exactly this token string, special or not.
  virtual std::optional<int32_t> TokenId(std::string_view token) const = 0;
};

// Reads a tokenizer.json. Total over any bytes: INVALID_ARGUMENT for text that is not such a file,
// UNIMPLEMENTED naming the field and the value that this build does not support, with those it
// does.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(std::string_view json);

// `directory`/tokenizer.json. NOT_FOUND when it is missing; errors name the path.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory);

}  // namespace tandem
