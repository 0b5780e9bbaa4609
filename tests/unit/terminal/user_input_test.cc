#include "server/terminal/user_input.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::terminal::user_input_test {
namespace {

using ::testing::HasSubstr;

UserInput Parsed(std::string_view text) {
  const auto input = ParseInput(text);
  EXPECT_TRUE(input.ok()) << input.status();
  return input.value_or(UserInput{});
}

std::string InputRefusal(std::string_view text) {
  const auto input = ParseInput(text);
  EXPECT_TRUE(absl::IsInvalidArgument(input.status())) << text;
  return std::string(input.status().message());
}

TEST(UserInputTest, TextIsAMessageWithoutTheSpacesAroundIt) {
  EXPECT_EQ(Parsed("  two words \n").verb, Verb::kSay);
  EXPECT_EQ(Parsed("  two words \n").text, "two words");
  EXPECT_EQ(Parsed(" \t ").text, "");
  EXPECT_EQ(Parsed("a /save b").text, "a /save b");
}

TEST(UserInputTest, TwoSlashesBeginAMessageWithOne) {
  EXPECT_EQ(Parsed("//usr/bin is what?").verb, Verb::kSay);
  EXPECT_EQ(Parsed("//usr/bin is what?").text, "/usr/bin is what?");
}

TEST(UserInputTest, EveryCommandIsFoundByItsName) {
  for (const CommandInfo& command : Commands()) {
    const std::string argument = command.takes == Argument::kNone ? "" : "  some thing ";
    const UserInput input = Parsed(std::string(command.name) + argument);
    EXPECT_EQ(input.verb, command.verb) << command.name;
    EXPECT_EQ(input.text, argument.empty() ? "" : "some thing");
  }
}

TEST(UserInputTest, ACommandMayBeAbbreviatedWhileItIsTheOnlyOne) {
  EXPECT_EQ(Parsed("/q").verb, Verb::kQuit);
  EXPECT_EQ(Parsed("/ro unified").verb, Verb::kRoute);
  EXPECT_THAT(InputRefusal("/s x"), HasSubstr("/system, /save, /stats"));
  EXPECT_THAT(InputRefusal("/r"), HasSubstr("/route, /retry"));
}

TEST(UserInputTest, WhatIsNoCommandIsRefusedWithTheWayOut) {
  EXPECT_THAT(InputRefusal("/usr/bin"), HasSubstr("there is no command /usr/bin"));
  EXPECT_THAT(InputRefusal("/usr/bin"), HasSubstr("begins with two"));
  EXPECT_THAT(InputRefusal("/\033[2J"), HasSubstr("␛[2J"));
  EXPECT_LT(InputRefusal("/" + std::string(1000, 'x')).size(), 200u);
}

TEST(UserInputTest, ArgumentsAreGivenWhereTheyAreTaken) {
  EXPECT_THAT(InputRefusal("/save"), HasSubstr("/save FILE"));
  EXPECT_THAT(InputRefusal("/load  "), HasSubstr("/load FILE"));
  EXPECT_THAT(InputRefusal("/clear all"), HasSubstr("/clear takes nothing"));
  EXPECT_EQ(Parsed("/system Be brief.\nBe kind.").text, "Be brief.\nBe kind.");
  EXPECT_EQ(Parsed("/route").text, "");
}

TEST(UserInputTest, TabCompletesTheOnlyCommandThatFits) {
  EXPECT_EQ(CompletionOf("/exp"), "lain ");
  EXPECT_EQ(CompletionOf("/quit"), " ");
  EXPECT_EQ(CompletionOf("/s"), std::nullopt);
  EXPECT_EQ(CompletionOf("/x"), std::nullopt);
  EXPECT_EQ(CompletionOf("exp"), std::nullopt);
  EXPECT_EQ(CompletionOf(""), std::nullopt);
}

TEST(LineJoinerTest, ALineThatEndsInABackslashGoesOn) {
  LineJoiner joiner;
  EXPECT_EQ(joiner.Add("alone"), "alone");
  EXPECT_EQ(joiner.Add("one\\"), std::nullopt);
  EXPECT_TRUE(joiner.is_open());
  EXPECT_EQ(joiner.Add("\\"), std::nullopt);
  EXPECT_EQ(joiner.Add("two"), "one\n\ntwo");
  EXPECT_FALSE(joiner.is_open());
}

TEST(LineJoinerTest, AnInputThatEndsInTheMiddleKeepsWhatCame) {
  LineJoiner joiner;
  EXPECT_EQ(joiner.Add("one\\"), std::nullopt);
  EXPECT_EQ(joiner.Take(), "one\n");
  EXPECT_FALSE(joiner.is_open());
  EXPECT_EQ(joiner.Add("two"), "two");
}

}  // namespace
}  // namespace tandem::terminal::user_input_test
