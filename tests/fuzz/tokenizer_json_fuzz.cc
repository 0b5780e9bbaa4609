// tokenizer.json up to the first NUL byte, then a text that the tokenizer encodes if it was read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"

namespace {

// What a hostile pattern may cost grows with the square of the text.
constexpr size_t kMaxTextBytes = 512;

void RoundTrip(const tandem::Tokenizer& tokenizer, std::string_view text) {
  using tandem::SkipSpecial;
  using tandem::SpecialTokens;
  const auto ids = tokenizer.Encode(text, {});
  if (!ids.ok()) return;
  (void)tokenizer.Encode(text, {SpecialTokens::kAsText, tandem::Template::kOmit});
  tandem::Detokenizer detokenizer(tokenizer);
  std::string streamed;
  for (const int32_t id : *ids) {
    const std::string piece = detokenizer.Push(id);
    TANDEM_CHECK(tandem::ValidUtf8Prefix(piece) == piece.size(), "a piece is half a character");
    streamed += piece;
  }
  streamed += detokenizer.Flush();
  const auto whole = tokenizer.Decode(*ids, SkipSpecial::kYes);
  TANDEM_CHECK(whole.ok(), "an id that Encode gave is outside the vocabulary");
  TANDEM_CHECK(*whole == streamed, "the stream differs from the whole text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const auto tokenizer = tandem::ParseTokenizerJson(input.substr(0, end));
  if (!tokenizer.ok()) return 0;
  const std::string_view text = end == std::string_view::npos ? "a b" : input.substr(end + 1);
  RoundTrip(**tokenizer, text.substr(0, kMaxTextBytes));
  return 0;
}
