#include "server/config/config_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::config_text_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> ValuesOfLine(const std::string& line) {
  const auto sections = ParseConfigText("[a]\n" + line + "\n");
  EXPECT_TRUE(sections.ok()) << line << ": " << sections.status();
  if (!sections.ok()) return {};
  return sections->front().entries.front().values;
}

std::string ErrorOfText(const std::string& text) {
  const auto sections = ParseConfigText(text);
  EXPECT_EQ(sections.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(sections.status().message());
}

TEST(ConfigTextTest, SectionsAndEntriesKnowTheirLines) {
  const auto sections =
      ParseConfigText("# first\n[router]\nport = 1\n\n[worker.decode]\n; x\nport=2");
  ASSERT_TRUE(sections.ok()) << sections.status();
  ASSERT_EQ(sections->size(), 2u);
  EXPECT_EQ((*sections)[0].name, "router");
  EXPECT_EQ((*sections)[0].line, 2);
  EXPECT_EQ((*sections)[1].name, "worker.decode");
  ASSERT_EQ((*sections)[1].entries.size(), 1u);
  EXPECT_EQ((*sections)[1].entries[0].line, 7);
}

TEST(ConfigTextTest, ValuesAreTextsWithOrWithoutQuotesOrLists) {
  EXPECT_THAT(ValuesOfLine("k = nccl,tcp"), ElementsAre("nccl,tcp"));
  EXPECT_THAT(ValuesOfLine("k = /a path/with spaces # why"), ElementsAre("/a path/with spaces"));
  EXPECT_THAT(ValuesOfLine("k = a#b"), ElementsAre("a#b"));
  EXPECT_THAT(ValuesOfLine("k = \"a # b\"  # why"), ElementsAre("a # b"));
  EXPECT_THAT(ValuesOfLine(R"(k = "say \"x\" \\")"), ElementsAre("say \"x\" \\"));
  EXPECT_THAT(ValuesOfLine(R"(k = 'C:\x "y"')"), ElementsAre("C:\\x \"y\""));
  EXPECT_THAT(ValuesOfLine("k = \"\""), ElementsAre(""));
  EXPECT_THAT(ValuesOfLine("k = [\"a\", b,\n  'c',  # why\n]"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(ValuesOfLine("k = 1\r"), ElementsAre("1"));
  EXPECT_THAT(ValuesOfLine("k"), ElementsAre("true"));
}

TEST(ConfigTextTest, WhatCannotBeReadIsAnErrorWithItsLine) {
  EXPECT_THAT(ErrorOfText("port = 1\n[router]\n"),
              HasSubstr("line 1: port stands before the first section"));
  EXPECT_THAT(ErrorOfText("[a]\nk = 1\nk = 2\n"),
              HasSubstr("line 3: [a] has k already, on line 2"));
  EXPECT_THAT(ErrorOfText("[a]\n[b]\n[a]\n"), HasSubstr("line 3: [a] is there already, on line 1"));
  EXPECT_THAT(ErrorOfText("[a]\nk = [\n]\n"), HasSubstr("line 2: the list is empty"));
  EXPECT_THAT(ErrorOfText("[a]\nk = [1, 2\n"),
              HasSubstr("line 2: the list that begins here has no ]"));
  EXPECT_THAT(ErrorOfText("[a]\nk = [1 2, , 3]\n"), HasSubstr("line 2: values of a list"));
  EXPECT_THAT(ErrorOfText("[a]\nk = \"x\n"),
              HasSubstr("line 2: the text that begins with \" has no quote"));
  EXPECT_THAT(ErrorOfText("[a]\nk = \"x\" y\n"), HasSubstr("line 2: y stands behind the value"));
  EXPECT_THAT(ErrorOfText("[a]\nk = # none\n"), HasSubstr("line 2: there is no value behind ="));
  EXPECT_THAT(ErrorOfText("[a]\n= 3\n"), HasSubstr("line 2: there is no key before ="));
  EXPECT_THAT(ErrorOfText("[[a]]\n"), HasSubstr("write [a]"));
  EXPECT_THAT(ErrorOfText("[a\n"), HasSubstr("line 1: [a is no section"));
  EXPECT_THAT(ErrorOfText(std::string(kMostConfigBytes + 1, 'x')), HasSubstr("1048577 bytes"));
}

}  // namespace
}  // namespace tandem::config_text_test
