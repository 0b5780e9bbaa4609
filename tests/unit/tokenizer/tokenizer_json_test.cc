#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/tree.h"
#include "tests/unit/tokenizer/small_tokenizer.h"

namespace tandem::tokenizer_json_test {
namespace {

using testing::HasSubstr;

Json Letters() { return SmallTokenizer({"a", "b", "ab"}, {"a b"}); }

absl::Status StatusOf(const Json& json) { return ParseTokenizerJson(json.dump()).status(); }

void ExpectRefused(const Json& json, absl::StatusCode code, const std::string& named) {
  const absl::Status status = StatusOf(json);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(named));
}

TEST(TokenizerJson, ReadsAMinimalFile) {
  const auto tokenizer = Parse(Letters());
  EXPECT_EQ(tokenizer->vocab_size(), 3);
  EXPECT_EQ(tokenizer->TokenId("ab"), 2);
  EXPECT_EQ(tokenizer->TokenId("ba"), std::nullopt);
  EXPECT_EQ(*tokenizer->Encode("aab", {}), (std::vector<int32_t>{0, 2}));
}

TEST(TokenizerJson, AcceptsMergesAsPairs) {
  Json json = Letters();
  json["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  EXPECT_EQ(Tokens(json, "ab"), std::vector<std::string>{"ab"});
}

// With a token for each byte, so that no text is left out.
Json LettersAndBytes() {
  std::vector<std::string> tokens = {"a", "b", "ab"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte));
  Json json = SmallTokenizer(tokens, {"a b"});
  json["model"]["byte_fallback"] = true;
  return json;
}

TEST(TokenizerJson, KnowsHowManyBytesATokenCanStandFor) {
  Json json = LettersAndBytes();
  EXPECT_EQ(Parse(json)->MaxBytesPerToken(), 6u) << "as long as <0x00> is written";
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "bbb"}}}, {"content", "b"}};
  EXPECT_EQ(Parse(json)->MaxBytesPerToken(), 18u);
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(Parse(json)->MaxBytesPerToken(), 48u);
}

TEST(TokenizerJson, ATokenCanStandForAnyTextWhereSomeIsLeftOut) {
  EXPECT_EQ(Parse(Letters())->MaxBytesPerToken(), std::nullopt) << "c has no token";
  Json json = LettersAndBytes();
  json["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_EQ(Parse(json)->MaxBytesPerToken(), std::nullopt);
  json = LettersAndBytes();
  json["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  EXPECT_EQ(Parse(json)->MaxBytesPerToken(), std::nullopt);
  json = LettersAndBytes();
  json["added_tokens"].push_back(AddedTokenJson(json, "ab"));
  EXPECT_EQ(Parse(json)->MaxBytesPerToken(), 6u);
  json["added_tokens"][0]["lstrip"] = true;
  EXPECT_EQ(Parse(json)->MaxBytesPerToken(), std::nullopt);
}

TEST(TokenizerJson, RefusesWhatIsNoTokenizer) {
  for (const char* text : {"", "{", "[]", "null", "{}", "{\"model\": 1}", "\xFF"}) {
    EXPECT_EQ(ParseTokenizerJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(TokenizerJson, SurvivesNesting) {
  EXPECT_FALSE(ParseTokenizerJson(std::string(1'000'000, '[')).ok());
  Json step = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) {
    step = {{"type", "Sequence"}, {"normalizers", Json::array({step})}};
  }
  Json json = Letters();
  json["normalizer"] = step;
  ExpectRefused(json, absl::StatusCode::kUnimplemented, "nested deeper");
}

TEST(TokenizerJson, NamesTheFieldThatItDoesNotKnow) {
  Json json = Letters();
  json["model"]["turbo"] = true;
  ExpectRefused(json, absl::StatusCode::kUnimplemented, "model.turbo");
  json = Letters();
  json["extra"] = 1;
  ExpectRefused(json, absl::StatusCode::kUnimplemented, "extra");
}

TEST(TokenizerJson, NamesTheValueThatItDoesNotSupport) {
  const auto expect = [](const std::string& pointer, const Json& value, const std::string& named) {
    Json json = Letters();
    json[Json::json_pointer(pointer)] = value;
    ExpectRefused(json, absl::StatusCode::kUnimplemented, named);
  };
  expect("/model/type", "Unigram", "model.type: Unigram");
  expect("/model/dropout", 0.5, "0.5");
  expect("/model/continuing_subword_prefix", "##", "##");
  expect("/model/end_of_word_suffix", "</w>", "</w>");
  expect("/version", "2.0", "2.0");
  expect("/normalizer", {{"type", "Precompiled"}}, "Precompiled");
  expect("/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "BertPreTokenizer");
  expect("/post_processor", {{"type", "BertProcessing"}}, "BertProcessing");
  expect("/decoder", {{"type", "WordPiece"}}, "WordPiece");
  expect("/pre_tokenizer", ParseJson(R"({"type": "Split", "pattern": {"Regex": "\\bx"},
                                           "behavior": "Isolated", "invert": false})"),
         "pre_tokenizer.pattern.Regex");
  expect("/pre_tokenizer", ParseJson(R"({"type": "Split", "pattern": {"String": "x"},
                                           "behavior": "Sideways", "invert": false})"),
         "Sideways");
}

// Their other fields are not what is wrong with them.
TEST(TokenizerJson, NamesTheTypeOfAModelThatIsNotBpe) {
  Json json = Letters();
  json["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", Json::array()}};
  ExpectRefused(json, absl::StatusCode::kUnimplemented, "model.type: Unigram is not supported");
  json["model"] = {{"type", "WordPiece"}, {"max_input_chars_per_word", 100}};
  ExpectRefused(json, absl::StatusCode::kUnimplemented, "model.type: WordPiece is not supported");
}

// transformers writes both into the file after any call that padded or cut.
TEST(TokenizerJson, TruncationAndPaddingAreIgnored) {
  Json json = Letters();
  json["truncation"] = {{"max_length", 1}, {"strategy", "LongestFirst"}};
  json["padding"] = {{"strategy", "BatchLongest"}, {"pad_id", 0}, {"pad_to_multiple_of", 8}};
  EXPECT_EQ(Tokens(json, "aab"), (std::vector<std::string>{"a", "ab"}));
}

TEST(TokenizerJson, WithoutADecoderASpaceStandsBetweenTokens) {
  Json json = Letters();
  json["decoder"] = nullptr;
  EXPECT_EQ(*Parse(json)->Decode({0, 1, 2}, SkipSpecial::kNo), "a b ab");
}

TEST(TokenizerJson, RobertaProcessingSurroundsTheText) {
  Json json = Letters();
  json["post_processor"] = {{"type", "RobertaProcessing"},
                            {"cls", {"a", 0}},
                            {"sep", {"b", 1}},
                            {"trim_offsets", true},
                            {"add_prefix_space", false}};
  EXPECT_EQ(*Parse(json)->Encode("ab", {}), (std::vector<int32_t>{0, 2, 1}));
  json["post_processor"]["sep"] = {"b", 3};
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "post_processor.sep");
  json["post_processor"]["sep"] = "b";
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "post_processor.sep");
}

TEST(TokenizerJson, AcceptsTheHarmlessFormsOfUnsupportedFields) {
  Json json = Letters();
  json["model"]["dropout"] = 0.0;
  json["model"]["continuing_subword_prefix"] = "";
  json["model"]["end_of_word_suffix"] = nullptr;
  json["truncation"] = nullptr;
  EXPECT_TRUE(StatusOf(json).ok()) << StatusOf(json);
}

TEST(TokenizerJson, RefusesInconsistentIds) {
  Json json = Letters();
  json["model"]["vocab"]["b"] = 0;
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "model.vocab.b");
  json = Letters();
  json["model"]["vocab"]["b"] = 100'000'000;
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "100000000");
  json = Letters();
  json["model"]["vocab"]["b"] = -1;
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "model.vocab.b");
  json = Letters();
  json["model"]["merges"] = {"a c"};
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "model.merges[0]");
  json = Letters();
  json["added_tokens"] = Json::array({{{"id", 1}, {"content", "<s>"}}});
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "<s>");
  json = Letters();
  json["model"]["unk_token"] = "<unk>";
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "<unk>");
}

TEST(TokenizerJson, IdsOfHolesAddNothing) {
  Json json = Letters();
  json["model"]["vocab"]["c"] = 9;
  const auto tokenizer = Parse(json);
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_EQ(*tokenizer->Decode({0, 5, 9}, SkipSpecial::kNo), "ac");
  EXPECT_EQ(tokenizer->Decode({10}, SkipSpecial::kNo).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tokenizer->Decode({-1}, SkipSpecial::kNo).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TokenizerJson, PutsTheTemplateAroundTheText) {
  Json json = Letters();
  json["post_processor"] = ParseJson(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "E", "type_id": 0}}],
      "pair": [], "special_tokens": {"B": {"id": "B", "ids": [1], "tokens": ["b"]},
                                     "E": {"id": "E", "ids": [2, 2], "tokens": ["ab", "ab"]}}})");
  const auto tokenizer = Parse(json);
  EXPECT_EQ(*tokenizer->Encode("a", {}), (std::vector<int32_t>{1, 0, 2, 2}));
  EXPECT_EQ(*tokenizer->Encode("", {}), (std::vector<int32_t>{1, 2, 2}));
  EXPECT_EQ(*tokenizer->Encode("a", {SpecialTokens::kParse, Template::kOmit}),
            std::vector<int32_t>{0});
}

TEST(TokenizerJson, RefusesATemplateOutsideTheVocabulary) {
  Json json = Letters();
  json["post_processor"] = ParseJson(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"B": {"id": "B", "ids": [3], "tokens": ["b"]}}})");
  ExpectRefused(json, absl::StatusCode::kInvalidArgument, "post_processor.special_tokens.B.ids");
}

TEST(TokenizerJson, LoadNamesThePath) {
  const absl::Status missing = LoadTokenizer("/nonexistent/model").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nonexistent/model/tokenizer.json"));
}

TEST(TokenizerJson, ReadsTheSampleModel) {
  const auto tokenizer = LoadTokenizer(SampleModel());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "It is a truth universally acknowledged, \xE2\x80\x9Cthat\xE2\x80\x9D.";
  const auto ids = (*tokenizer)->Encode(text, {SpecialTokens::kParse, Template::kOmit});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*(*tokenizer)->Decode(*ids, SkipSpecial::kYes), text);
}

// The fuzz target starts from these: a seed that is not read explores nothing.
TEST(TokenizerJson, ReadsTheSeedsOfTheFuzzTarget) {
  const std::string corpus = TreePath("tests/fuzz/corpus/tokenizer_json/");
  for (const char* name : {"gpt2", "llama3", "qwen", "spm", "metaspace", "many_steps"}) {
    std::ifstream file(corpus + name, std::ios::binary);
    const std::string seed((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    const auto tokenizer = ParseTokenizerJson(seed.substr(0, seed.find('\0')));
    EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
  }
}

}  // namespace
}  // namespace tandem::tokenizer_json_test
