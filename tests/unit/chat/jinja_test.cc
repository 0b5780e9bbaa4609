// Expected texts are those of jinja2 3.1.6 in the environment of transformers 5.23.0; far more of
// them are compared by chat_golden_test and tests/golden/compare_random_templates.py.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/chat/rendered.h"

namespace tandem::jinja_test {
namespace {

using testing::HasSubstr;

TEST(JinjaTest, WhiteSpaceAroundBlocksIsDropped) {
  EXPECT_EQ(Rendered("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(Rendered("a \n {%- if true -%} \n b {%- endif %}"), "ab");
  EXPECT_EQ(Rendered("  {%+ if true +%}\nb{% endif %}"), "  \nb");
  EXPECT_EQ(Rendered("a\n  {{ 1 }}\nb"), "a\n  1\nb");
  EXPECT_EQ(Rendered("a\n  {# x #}\nb"), "a\nb");
  EXPECT_EQ(Rendered("{% raw -%}  {{ x }} {%- endraw %}"), "{{ x }}");
}

TEST(JinjaTest, UndefinedIsEmptyUntilItIsUsed) {
  EXPECT_EQ(Rendered("[{{ x }}{{ x ~ 'a' }}{% for i in x %}{% endfor %}{{ x | length }}]"), "[a0]");
  EXPECT_EQ(Rendered("{{ x.y }}"), "error: line 1, column 5: 'x' is undefined");
  EXPECT_EQ(Rendered("{{ x + 'a' }}"), "error: line 1, column 6: 'x' is undefined");
  EXPECT_EQ(Rendered("{{ m.y is defined }}{{ m['y'].z }}", {{"m", {{"a", 1}}}}),
            "error: line 1, column 30: 'dict object' has no attribute 'y'");
}

TEST(JinjaTest, DotsFindMethodsFirstAndBracketsKeysFirst) {
  const ChatJson variables = {{"m", {{"items", 5}}}};
  EXPECT_EQ(Rendered("{{ m['items'] }}{{ m.items() | list }}", variables), "5[('items', 5)]");
}

TEST(JinjaTest, ListsAndDictsCannotBeChanged) {
  EXPECT_THAT(Rendered("{% set l = [] %}{{ l.append(1) }}"), HasSubstr("unsafe"));
  EXPECT_THAT(Rendered("{{ {}.update({'a': 1}) }}"), HasSubstr("unsafe"));
}

TEST(JinjaTest, ValuesArePrintedAsInPython) {
  EXPECT_EQ(Rendered("{{ [1, 'a', \"it's\", none, true, 2.0, (1,), {'k': []}] }}"),
            "[1, 'a', \"it's\", None, True, 2.0, (1,), {'k': []}]");
  EXPECT_EQ(Rendered("{{ 1e20 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 0.0001 }} {{ 0.00001 }}"),
            "1e+20 1e+16 123456789012345.0 0.0001 1e-05");
  EXPECT_EQ(Rendered("{{ ['\\u200b\\n', 'é'] }}"), "['\\u200b\\n', 'é']");
}

TEST(JinjaTest, NumbersAreThoseOfPython) {
  EXPECT_EQ(Rendered("{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }}"),
            "3.5 3 -4 2 64");
  EXPECT_THAT(Rendered("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(Rendered("{{ 1 // 0 }}"), HasSubstr("division by zero"));
}

TEST(JinjaTest, LoopsKnowTheirPlace) {
  EXPECT_EQ(
      Rendered("{% for x in 'abc' %}{{ loop.index0 }}{{ loop.previtem }}{{ x }}"
               "{{ loop.nextitem }}{{ loop.revindex }}{{ ',' if not loop.last }}{% endfor %}"),
      "0ab3,1abc2,2bc1");
  EXPECT_EQ(Rendered("{% for x in [1, 2, 3, 4] if x is even %}{{ x }}/{{ loop.length }} "
                     "{% endfor %}"),
            "2/2 4/2 ");
  EXPECT_EQ(Rendered("{% for x in [] %}x{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(Rendered("{% for x in [1, 2] %}{% continue %}{% else %}none{% endfor %}"), "none");
}

TEST(JinjaTest, AFilterOfALoopSeesWhatTheBodyHasDone) {
  EXPECT_EQ(Rendered("{% set ns = namespace(stop=false) %}{% for x in range(9) if not ns.stop %}"
                     "{{ x }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}"),
            "012");
}

TEST(JinjaTest, SetInALoopEndsWithTheTurn) {
  EXPECT_EQ(
      Rendered("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{% endfor %}{{ x }}"),
      "111");
  EXPECT_EQ(Rendered("{% if true %}{% set x = 5 %}{% endif %}{{ x }}"), "5");
}

TEST(JinjaTest, MacrosTakeDefaultsAndSeeWhatIsSetLater) {
  EXPECT_EQ(Rendered("{% macro m(a, b='z') %}{{ a }}{{ b }}{{ y }}{% endmacro %}"
                     "{% set y = 1 %}{{ m(1) }} {{ m(1, b=2) }}"),
            "1z1 121");
  EXPECT_EQ(Rendered("{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(x) m() %}<{{ x }}>"
                     "{% endcall %}"),
            "<1>");
  EXPECT_THAT(Rendered("{% macro m() %}{% endmacro %}{{ m(1) }}"), HasSubstr("at most 0"));
}

TEST(JinjaTest, GeneratorsGiveTheirItemsOnce) {
  EXPECT_EQ(Rendered("{% set g = [1, 2] | map('string') %}{{ g | join }}{{ g | join }}"), "12");
  EXPECT_THAT(Rendered("{{ [1] | map('string') }}"), HasSubstr("generator"));
}

TEST(JinjaTest, JsonIsThatOfPython) {
  const ChatJson variables = {{"v", {{"b", 1}, {"a", {1.0, nullptr, "<é\n>"}}, {"c", {}}}}};
  EXPECT_EQ(Rendered("{{ v | tojson }}", variables),
            "{\"b\": 1, \"a\": [1.0, null, \"<é\\n>\"], \"c\": null}");
  EXPECT_EQ(Rendered("{{ {'a': [1, {}]} | tojson(indent=2) }}"),
            "{\n  \"a\": [\n    1,\n    {}\n  ]\n}");
  EXPECT_EQ(Rendered("{{ ['é😀', 2] | tojson(ensure_ascii=true, separators=(',', ':')) }}"),
            "[\"\\u00e9\\ud83d\\ude00\",2]");
}

TEST(JinjaTest, ATupleIsNoKeyButMayBeLookedFor) {
  EXPECT_EQ(Rendered("{{ (1, 2) in {'a': 1} }}{{ ((1, 'b'), none) not in {} }}"), "FalseTrue");
  EXPECT_THAT(Rendered("{{ (1, [2]) in {'a': 1} }}"), HasSubstr("cannot be the key"));
  EXPECT_THAT(Rendered("{{ [1] in {'a': 1} }}"), HasSubstr("cannot be the key"));
}

TEST(JinjaTest, WhatIsShortEnoughIsNotTruncated) {
  EXPECT_EQ(Rendered("{{ 'a b c d e f' | truncate(5, false, '', 0) }}"), "a b");
  EXPECT_EQ(Rendered("{{ [1, 2] | truncate(9) }}{{ {} | truncate(3) }}{{ x | truncate }}"),
            "[1, 2]{}");
  EXPECT_THAT(Rendered("{{ range(20) | list | truncate(9) }}"),
              HasSubstr("truncate wants a string"));
}

TEST(JinjaTest, StringsAreSequencesOfCharacters) {
  EXPECT_EQ(
      Rendered("{{ '日本語' | length }}{{ '日本語'[1:] }}{{ '日本語'[::-1] }}{{ '日本語'[-1] }}"),
      "3本語語本日語");
  EXPECT_EQ(
      Rendered("[{{ '　a　' | trim }}|{{ 'xxaxx'.strip('x') }}|{{ 'aXbX'.replace('X', '-', 1) }}]"),
      "[a|a|a-bX]");
}

TEST(JinjaTest, TimeIsTheGivenOne) {
  EXPECT_EQ(Rendered("{{ strftime_now('%d %b %Y %H:%M:%S %A %-d %j %U') }}"),
            "02 Jan 2026 03:04:05 Friday 2 002 00");
}

TEST(JinjaTest, ExceptionsOfTemplatesKeepTheirText) {
  EXPECT_EQ(Rendered("{{ raise_exception('Roles must alternate!') }}"),
            "error: Roles must alternate!");
}

TEST(JinjaTest, WhatIsNotSupportedIsNamedWithItsPlace) {
  const auto failed = [](std::string_view source) {
    const auto program = jinja::Parse(source);
    EXPECT_EQ(program.status().code(), absl::StatusCode::kUnimplemented) << source;
    return std::string(program.status().message());
  };
  EXPECT_EQ(failed("a\n{{ x | urlize }}"),
            "line 2, column 8: the filter 'urlize' is not supported");
  EXPECT_EQ(failed("{% include 'x' %}"), "line 1, column 4: the tag 'include' is not supported");
  EXPECT_EQ(failed("{% for x in y recursive %}{% endfor %}"),
            "line 1, column 4: recursive loops are not supported");
  // In a branch that is never taken it does no harm, as in Jinja.
  EXPECT_EQ(Rendered("{% if false %}{{ x | from_json }}{% endif %}ok"), "ok");
  EXPECT_THAT(Rendered("{% if true %}{{ x | from_json }}{% endif %}"),
              HasSubstr("the filter 'from_json' is not supported"));
  EXPECT_THAT(Rendered("{{ 'a'.translate({}) }}"), HasSubstr("translate"));
}

TEST(JinjaTest, SyntaxErrorsHaveTheirPlace) {
  const auto failed = [](std::string_view source) {
    const auto program = jinja::Parse(source);
    EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument) << source;
    return std::string(program.status().message());
  };
  EXPECT_EQ(failed("{{ a b }}"), "line 1, column 6: expected '}}', found 'b'");
  EXPECT_EQ(failed("\n{% if x %}"), "line 2, column 11: the template ends before 'endif'");
  EXPECT_EQ(failed("{{ (1 }}"), "line 1, column 7: unexpected '}', expected ')'");
  EXPECT_EQ(failed("{% endfor %}"), "line 1, column 4: there is no tag 'endfor' here");
}

}  // namespace
}  // namespace tandem::jinja_test
