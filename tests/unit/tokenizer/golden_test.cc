// Ids and texts equal to those of the HuggingFace tokenizers library on every line of
// tests/golden/tokenizer (its README.md has the formats, the version and the command).
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/read_file.h"
#include "tests/support/tree.h"

namespace tandem::golden_test {
namespace {

constexpr size_t kMinLines = 20'000;

std::string GoldenPath(const std::string& name) {
  return TreePath("tests/golden/tokenizer/") + name;
}

std::string Decompress(const std::string& path) {
  const std::string compressed = ReadFile(path);
  std::string out;
  std::vector<char> chunk(ZSTD_DStreamOutSize());
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  ZSTD_inBuffer input = {compressed.data(), compressed.size(), 0};
  size_t result = 1;
  while (input.pos < input.size) {
    ZSTD_outBuffer output = {chunk.data(), chunk.size(), 0};
    result = ZSTD_decompressStream(context.get(), &output, &input);
    if (ZSTD_isError(result)) break;
    out.append(chunk.data(), output.pos);
  }
  EXPECT_EQ(result, 0U) << path << " is damaged";
  return out;
}

// Little-endian u32 counts and what they count.
class Reader {
 public:
  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}

  bool AtEnd() const { return at_ == bytes_.size(); }
  uint32_t Number() {
    uint32_t number = 0;
    for (size_t i = 0; i < 4; ++i) {
      number |= uint32_t{static_cast<uint8_t>(bytes_.at(at_ + i))} << (8 * i);
    }
    at_ += 4;
    return number;
  }
  std::string Text() {
    const uint32_t length = Number();
    at_ += length;
    return bytes_.substr(at_ - length, length);
  }
  std::vector<int32_t> Ids() {
    std::vector<int32_t> ids(Number());
    for (int32_t& id : ids) id = static_cast<int32_t>(Number());
    return ids;
  }

 private:
  const std::string bytes_;
  size_t at_ = 0;
};

std::vector<std::string> ReadTexts(const std::string& name) {
  Reader reader(Decompress(GoldenPath(name)));
  std::vector<std::string> texts(reader.Number());
  for (std::string& text : texts) text = reader.Text();
  EXPECT_TRUE(reader.AtEnd()) << name;
  return texts;
}

std::vector<std::vector<int32_t>> ReadIds(const std::string& name) {
  Reader reader(Decompress(GoldenPath(name)));
  std::vector<std::vector<int32_t>> ids;
  while (!reader.AtEnd()) ids.push_back(reader.Ids());
  return ids;
}

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto tokenizer = ParseTokenizerJson(ReadFile(GoldenPath(GetParam() + ".json")));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const {
    auto ids = tokenizer_->Encode(text, options);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? *ids : std::vector<int32_t>();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerGolden, EncodesEveryLine) {
  const std::vector<std::string> lines = ReadTexts("lines.bin.zst");
  const std::vector<std::vector<int32_t>> expected = ReadIds(GetParam() + ".ids.zst");
  ASSERT_GE(lines.size(), kMinLines);
  ASSERT_EQ(lines.size(), expected.size());
  const EncodeOptions options = {SpecialTokens::kParse, Template::kOmit};
  for (size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(Encode(lines[i], options), expected[i])
        << "line " << i << ": " << testing::PrintToString(lines[i]);
  }
}

TEST_P(TokenizerGolden, EncodesSpecialTokensAsText) {
  const auto manifest = ParseJson(ReadFile(GoldenPath("manifest.json")));
  const size_t first = manifest["groups"]["special"]["first_line"];
  const std::vector<std::string> lines = ReadTexts("lines.bin.zst");
  const std::vector<std::vector<int32_t>> expected = ReadIds(GetParam() + ".plain_ids.zst");
  ASSERT_EQ(expected.size(), manifest["groups"]["special"]["lines"].get<size_t>());
  const EncodeOptions options = {SpecialTokens::kAsText, Template::kOmit};
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(Encode(lines[first + i], options), expected[i])
        << "line " << first + i << ": " << testing::PrintToString(lines[first + i]);
  }
}

TEST_P(TokenizerGolden, AddsTheTemplate) {
  const auto manifest = ParseJson(ReadFile(GoldenPath("manifest.json")));
  const auto& cases = manifest["kinds"][GetParam()]["with_post_processor"];
  ASSERT_FALSE(cases.empty());
  for (const auto& example : cases) {
    EXPECT_EQ(Encode(example["text"].get<std::string>(), {}),
              example["ids"].get<std::vector<int32_t>>());
  }
}

TEST_P(TokenizerGolden, DecodesEveryLine) {
  const std::vector<std::vector<int32_t>> ids = ReadIds(GetParam() + ".ids.zst");
  const std::vector<std::string> expected = ReadTexts(GetParam() + ".decoded.zst");
  ASSERT_GE(ids.size(), kMinLines);
  ASSERT_EQ(ids.size(), expected.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    auto text = tokenizer_->Decode(ids[i], SkipSpecial::kNo);
    ASSERT_TRUE(text.ok()) << text.status();
    ASSERT_EQ(*text, expected[i]) << "line " << i;
  }
}

TEST_P(TokenizerGolden, StreamsWhatDecodeGivesInWholeCharacters) {
  const std::vector<std::vector<int32_t>> lines = ReadIds(GetParam() + ".ids.zst");
  for (size_t i = 0; i < lines.size(); ++i) {
    Detokenizer detokenizer(*tokenizer_);
    std::string streamed;
    for (const int32_t id : lines[i]) {
      const std::string piece = detokenizer.Push(id);
      ASSERT_EQ(ValidUtf8Prefix(piece), piece.size()) << "line " << i << " after " << streamed;
      streamed += piece;
    }
    streamed += detokenizer.Flush();
    auto whole = tokenizer_->Decode(lines[i], SkipSpecial::kYes);
    ASSERT_TRUE(whole.ok()) << whole.status();
    ASSERT_EQ(streamed, *whole) << "line " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGolden,
                         testing::Values("gpt2", "llama3", "qwen", "falcon", "spm",
                                         "spm_metaspace"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace tandem::golden_test
