#include <filesystem>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/tokenizer/small_tokenizer.h"

namespace tandem {
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
  expect("/model/type", "Unigram", "Unigram");
  expect("/model/dropout", 0.5, "0.5");
  expect("/model/continuing_subword_prefix", "##", "##");
  expect("/model/end_of_word_suffix", "</w>", "</w>");
  expect("/truncation", {{"max_length", 8}}, "truncation");
  expect("/padding", {{"strategy", "BatchLongest"}}, "padding");
  expect("/version", "2.0", "2.0");
  expect("/normalizer", {{"type", "Precompiled"}}, "Precompiled");
  expect("/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "BertPreTokenizer");
  expect("/post_processor", {{"type", "BertProcessing"}}, "BertProcessing");
  expect("/decoder", {{"type", "WordPiece"}}, "WordPiece");
  expect("/decoder", nullptr, "decoder");
  expect("/pre_tokenizer", Json::parse(R"({"type": "Split", "pattern": {"Regex": "\\bx"},
                                           "behavior": "Isolated", "invert": false})"),
         "pre_tokenizer.pattern.Regex");
  expect("/pre_tokenizer", Json::parse(R"({"type": "Split", "pattern": {"String": "x"},
                                           "behavior": "Sideways", "invert": false})"),
         "Sideways");
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
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
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
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
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
  const auto tokenizer = LoadTokenizer(std::string(TANDEM_SOURCE_DIR) + "/models/sample");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "It is a truth universally acknowledged, \xE2\x80\x9Cthat\xE2\x80\x9D.";
  const auto ids = (*tokenizer)->Encode(text, {SpecialTokens::kParse, Template::kOmit});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*(*tokenizer)->Decode(*ids, SkipSpecial::kYes), text);
}

// The fuzz target starts from these: a seed that is not read explores nothing.
TEST(TokenizerJson, ReadsTheSeedsOfTheFuzzTarget) {
  const std::string corpus = std::string(TANDEM_SOURCE_DIR) + "/tests/fuzz/corpus/tokenizer_json/";
  for (const char* name : {"gpt2", "llama3", "qwen", "spm", "metaspace", "many_steps"}) {
    std::ifstream file(corpus + name, std::ios::binary);
    const std::string seed((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    const auto tokenizer = ParseTokenizerJson(seed.substr(0, seed.find('\0')));
    EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
  }
}

}  // namespace
}  // namespace tandem
