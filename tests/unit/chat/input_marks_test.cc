#include "gtest/gtest.h"
#include "tests/unit/chat/rendered.h"

namespace tandem::input_marks_test {
namespace {

const ChatJson kVariables = {
    {"x", "  user text  "}, {"y", "a,b"}, {"l", {"p", "q"}}, {"d", {{"k", "v"}}}};

TEST(InputMarksTest, PrintedInputIsMarked) {
  EXPECT_EQ(Marked("<s>{{ x }}</s>", kVariables), "<s>«  user text  »</s>");
}

TEST(InputMarksTest, ConcatenationsKeepBothKinds) {
  EXPECT_EQ(Marked("{{ '<s>' + y + '</s>' }}", kVariables), "<s>«a,b»</s>");
  EXPECT_EQ(Marked("{{ '<s>' ~ y ~ 1 }}", kVariables), "<s>«a,b»1");
  EXPECT_EQ(Marked("{{ y * 2 }}", kVariables), "«a,ba,b»");
}

TEST(InputMarksTest, PartsOfTextsKeepTheirMarks) {
  EXPECT_EQ(Marked("{{ x | trim }}", kVariables), "«user text»");
  EXPECT_EQ(Marked("{{ ('<s>' + y)[1:5] }}", kVariables), "s>«a,»");
  EXPECT_EQ(Marked("{{ ('<s>' + y).split(',')[0] }}", kVariables), "<s>«a»");
  EXPECT_EQ(Marked("{{ ('<s>' + y).split('>')[1] }}", kVariables), "«a,b»");
  EXPECT_EQ(Marked("{{ y[::-1] }}{% for c in y %}{{ c }}-{% endfor %}", kVariables),
            "«b,aa»-«,»-«b»-");
}

TEST(InputMarksTest, ReplacedTextIsWhoseItIs) {
  EXPECT_EQ(Marked("{{ y | replace(',', '<s>') }}", kVariables), "«a»<s>«b»");
  EXPECT_EQ(Marked("{{ '<s>,</s>'.replace(',', y) }}", kVariables), "<s>«a,b»</s>");
}

TEST(InputMarksTest, JoinsAndFormatsKeepTheirMarks) {
  EXPECT_EQ(Marked("{{ l | join('<s>') }}", kVariables), "«p»<s>«q»");
  EXPECT_EQ(Marked("{{ '<s>%s</s>' % y }}", kVariables), "<s>«a,b»</s>");
  EXPECT_EQ(Marked("{{ '<s>{}</s>'.format(y) }}", kVariables), "<s>«a,b»</s>");
  EXPECT_EQ(Marked("{{ 'q\n' ~ y | indent(2) }}", kVariables), "q\n«a,b»");
}

TEST(InputMarksTest, WhatMixesInputIsInputAsAWhole) {
  EXPECT_EQ(Marked("{{ ('<s>' + y) | upper }}", kVariables), "«<S>A,B»");
  EXPECT_EQ(Marked("{{ d | tojson }}", kVariables), "«{\"k\": \"v\"}»");
  EXPECT_EQ(Marked("{{ l }}", kVariables), "«['p', 'q']»");
  EXPECT_EQ(Marked("{{ {'a': '<s>'} | tojson }}", kVariables), "{\"a\": \"<s>\"}");
}

TEST(InputMarksTest, KeysOfInputAreInput) {
  EXPECT_EQ(Marked("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", kVariables),
            "«k»=«v»");
}

TEST(InputMarksTest, KeysOfInputStayInputAsNamesOfArguments) {
  EXPECT_EQ(
      Marked("{% for k, v in dict(a=1, **d).items() %}{{ k }}={{ v }} {% endfor %}", kVariables),
      "a=1 «k»=«v» ");
  EXPECT_EQ(Marked("{% macro m() %}{% for k in kwargs %}{{ k }}{% endfor %}{% endmacro %}"
                   "{{ m(**d) }}",
                   kVariables),
            "«k»");
  EXPECT_EQ(Marked("{{ '<s>{k}'.format(**d) }}{{ '%(k)s' | format(**d) }}", kVariables), "<s>«vv»");
}

TEST(InputMarksTest, MacrosAndBlocksKeepTheMarks) {
  EXPECT_EQ(Marked("{% macro m(t) %}<s>{{ t }}{% endmacro %}{% set b %}[{{ m(y) }}]{% endset %}"
                   "{{ b }}",
                   kVariables),
            "[<s>«a,b»]");
}

}  // namespace
}  // namespace tandem::input_marks_test
