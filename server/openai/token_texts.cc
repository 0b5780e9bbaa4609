#include "server/openai/token_texts.h"

#include <memory>

#include "base/utf8.h"
#include "fmt/core.h"
#include "model/tokenizer/bpe.h"

namespace tandem::openai {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte that a token such as <0xE2> stands for.
std::optional<std::string> FallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return std::string(1, static_cast<char>(high * 16 + low));
}

// Writes bytes as OpenAI writes a token that is not valid text: "bytes:\xe2\x80".
std::string Escaped(std::string_view bytes) {
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace

TokenTexts::TokenTexts(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {
  if (tokenizer_ == nullptr) return;
  for (const std::string_view plain : {"a", "e", "0"}) {
    before_ = tokenizer_->TokenId(plain);
    if (before_) return;
  }
}

std::string TokenTexts::IdName(int32_t id) { return fmt::format("token_id:{}", id); }

TokenTexts::Text TokenTexts::Of(int32_t id) const {
  if (tokenizer_ == nullptr) return {.text = IdName(id), .bytes = {}};
  const std::unique_ptr<TextStream> stream = tokenizer_->StartText(SkipSpecial::kNo);
  if (before_) (void)stream->Push(*before_);
  std::string text = stream->Push(id);
  text += stream->Finish();
  if (text.find(kReplacementCharacter) == std::string::npos) return {.text = text, .bytes = text};
  // A token that is no whole character has its bytes in its spelling in the vocabulary.
  const std::string_view spelling = tokenizer_->Spelling(id);
  std::optional<std::string> bytes = FallbackByte(spelling);
  if (!bytes) bytes = ByteLevelBytes(spelling);
  if (!bytes || ValidUtf8Prefix(*bytes) == bytes->size()) return {.text = text, .bytes = text};
  return {.text = Escaped(*bytes), .bytes = *std::move(bytes)};
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

}  // namespace tandem::openai
