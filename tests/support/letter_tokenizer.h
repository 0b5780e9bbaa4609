#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace tandem {

// Token 'a' is the letter a, and so on through ASCII; other ids have no text.
class LetterTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions&) const override {
    return std::vector<int32_t>(text.begin(), text.end());
  }
  absl::StatusOr<std::vector<int32_t>> EncodeParts(std::span<const TextPart> parts,
                                                   const EncodeOptions&) const override {
    std::vector<int32_t> ids;
    for (const TextPart& part : parts) ids.insert(ids.end(), part.text.begin(), part.text.end());
    return ids;
  }
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids, SkipSpecial) const override {
    Letters letters;
    std::string text;
    for (const int32_t id : ids) text += letters.Push(id);
    return text;
  }
  std::unique_ptr<TextStream> StartText(SkipSpecial) const override {
    return std::make_unique<Letters>();
  }
  std::optional<size_t> MaxBytesPerToken() const override { return 1; }
  bool IsSpecial(int32_t) const override { return false; }
  int32_t vocab_size() const override { return 128; }
  std::optional<int32_t> TokenId(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return token[0];
  }
  std::string_view Spelling(int32_t id) const override {
    static constexpr std::string_view kLetters =
        " !\"#$%&'()*+,-./"
        "0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz"
        "{|}~";
    return id >= ' ' && id < 127 ? kLetters.substr(static_cast<size_t>(id - ' '), 1)
                                 : std::string_view();
  }

 private:
  class Letters final : public TextStream {
   public:
    std::string Push(int32_t id) override {
      return id >= ' ' && id < 127 ? std::string(1, static_cast<char>(id)) : std::string();
    }
    std::string Finish() override { return ""; }
  };
};

}  // namespace tandem
