#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/chat/jinja/loop.h"
#include "tests/unit/chat/rendered.h"

namespace tandem::jinja_limits_test {
namespace {

using testing::HasSubstr;

TEST(JinjaLimitsTest, LoopsWithoutEndRunOutOfSteps) {
  EXPECT_THAT(Rendered("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
                       "{% endfor %}"),
              HasSubstr("takes more than the 1000000 steps"));
}

TEST(JinjaLimitsTest, TextsThatDoubleRunOutOfSteps) {
  EXPECT_THAT(Rendered("{% set ns = namespace(t='abcdefgh') %}{% for a in range(100) %}"
                       "{% set ns.t = ns.t ~ ns.t %}{% endfor %}"),
              HasSubstr("steps"));
  EXPECT_THAT(Rendered("{{ 'a' * 999999999999 }}"), HasSubstr("steps"));
  EXPECT_THAT(Rendered("{{ [1] * 999999999999 }}"), HasSubstr("steps"));
  EXPECT_THAT(Rendered("{{ 'a'.center(99999999999) }}"), HasSubstr("steps"));
}

TEST(JinjaLimitsTest, WidthsOfAllIntegersAreCounted) {
  constexpr char kMost[] = "9223372036854775807";
  for (const char* call :
       {"''.ljust({})", "''.rjust({})", "''.center({})", "''.zfill({})", "'a'|indent({})",
        "'a'|center({})", "[1]|batch({}, 1)|list", "[1]|slice({})|list"}) {
    const std::string source = absl::StrReplaceAll(call, {{"{}", kMost}});
    EXPECT_THAT(Rendered("{{ " + source + " }}"), HasSubstr("steps")) << source;
    // What was refused once leaves no steps for the rest.
    EXPECT_THAT(Rendered("{{ 'a' }}{{ " + source + " }}{{ 'b' }}"), HasSubstr("steps")) << source;
  }
  const std::string least = "-9223372036854775807 - 1";
  for (const char* method : {"ljust", "rjust", "center", "zfill"}) {
    EXPECT_EQ(Rendered("{{ 'ab'." + std::string(method) + "(" + least + ") }}"), "ab") << method;
  }
}

// A text of 512 KiB in a list 10,000 times: cheap to name, but 5 GB to copy.
TEST(JinjaLimitsTest, CopiesOfOneTextArePaidEachTime) {
  const std::string many = "{% set t = 'a' * 524288 %}{% set l = [t] * 10000 %}";
  for (const char* use :
       {"l | sort", "l | unique | list", "l | min", "l | max", "l | groupby(0)", "''.join(l)",
        "([1] * 10000) | tojson(separators=(t, ':'))", "l | map('length') | list"}) {
    EXPECT_THAT(Rendered(many + "{{ (" + use + ") is defined }}"), HasSubstr("steps")) << use;
  }
  for (const char* use :
       {"t.zfill(1)", "'{:9}'.format(t)", "t == u", "t < u", "d[t]", "d.get(t)", "t in d",
        "t | length", "t.startswith('b')", "'a'.find(t)", "t.strip('ab')", "{t: 1}"}) {
    EXPECT_THAT(Rendered("{% set t = 'a' * 524288 %}{% set u = 'a' * 524288 %}{% set d = {'a': 1} "
                         "%}{% for i in range(9999) %}{% set x = " +
                         std::string(use) + " %}{% endfor %}"),
                HasSubstr("steps"))
        << use;
  }
}

// 'a...ab' in 'aaaa...': comparing all of it at each offset took minutes.
TEST(JinjaLimitsTest, SearchesTakeLinearTime) {
  const std::string texts =
      "{% set t = 'a' * 4000000 %}{% set n = 'a' * 2000000 ~ 'b' %}"
      "{% set m = 'b' ~ 'a' * 2000000 %}";
  const ChatJson none = ChatJson::object();
  for (const char* use : {"n in t", "t.find(n)", "t.count(n)", "t.replace(n, '')", "t.split(n)",
                          "t.partition(n)", "t.rfind(m)", "t.rsplit(m)", "t.rpartition(m)"}) {
    const auto text = RenderMarked(texts + "{{ (" + use + ") is defined }}", none, 100'000'000);
    ASSERT_TRUE(text.ok()) << use << text.status();
    EXPECT_EQ(text->bytes(), "True");
  }
  const std::string lines = "{% set s = '-' * 40 %}{% set t = 'a' ~ s ~ 'b' ~ s ~ 'c' %}";
  EXPECT_EQ(Rendered(lines + "{{ t.split(s) }} {{ t.rsplit(s, 1)[1] }} {{ t.rpartition(s)[2] }} "
                             "{{ t.count(s) }} {{ t.find(s) }} {{ t.rfind(s) }} {{ s in t }}"),
            "['a', 'b', 'c'] c c 2 1 42 True");
  EXPECT_EQ(Rendered("{{ 'aXXbXXXc'.rsplit('XX') }}{{ 'aXXbXXXc'.rsplit('XX', 1) }}"),
            "['a', 'bX', 'c']['aXXbX', 'c']");
}

TEST(JinjaLimitsTest, IndentsArePaid) {
  // 150 levels of 100 spaces before each of 999 numbers are 15 MB.
  EXPECT_THAT(Rendered("{% set ns = namespace(l=range(999) | list) %}{% for a in range(150) %}"
                       "{% set ns.l = [ns.l] %}{% endfor %}{% for a in range(9) %}"
                       "{% set x = ns.l | tojson(indent=100) %}{% endfor %}"),
              HasSubstr("steps"));
}

TEST(JinjaLimitsTest, NumbersArePaidByTheirDigits) {
  for (const char* format : {"'%.999f' % 1e308", "'{:,.999f}'.format(1e308)"}) {
    EXPECT_THAT(Rendered("{% for i in range(30000) %}{% set x = " + std::string(format) +
                         " %}{% endfor %}"),
                HasSubstr("steps"))
        << format;
  }
  EXPECT_EQ(Rendered("{{ '{:,}'.format(-1234567) }} {{ '{:,.2f}'.format(123456.5) }} "
                     "{{ '{:,.0%}'.format(12345) }}"),
            "-1,234,567 123,456.50 1,234,500%");
}

TEST(JinjaLimitsTest, ListsThatHoldThemselvesTwiceRunOutOfSteps) {
  const std::string doubled =
      "{% set ns = namespace(l=[1], m=[1]) %}{% for a in range(150) %}"
      "{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}";
  EXPECT_THAT(Rendered(doubled + "{{ ns.l }}"), HasSubstr("steps"));
  EXPECT_THAT(Rendered(doubled + "{{ ns.l | tojson }}"), HasSubstr("steps"));
  EXPECT_THAT(Rendered(doubled + "{{ ns.l == ns.m }}"), HasSubstr("steps"));
}

TEST(JinjaLimitsTest, TuplesThatHoldThemselvesTwiceRunOutOfSteps) {
  EXPECT_THAT(
      Rendered(
          "{% set ns = namespace(t=(1, 1)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}"
          "{% endfor %}{{ ns.t in {'a': 1} }}"),
      HasSubstr("steps"));
}

TEST(JinjaLimitsTest, NestingIsBounded) {
  EXPECT_THAT(Rendered("{% set ns = namespace(l=[]) %}{% for a in range(999) %}"
                       "{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("nested more than 200 deep"));
  EXPECT_THAT(Rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("nested"));
  EXPECT_THAT(Rendered("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("nested"));
  std::string sum = "1";
  for (int i = 0; i < 5000; ++i) sum += "+1";
  EXPECT_THAT(Rendered("{{ " + sum + " }}"), HasSubstr("nested"));
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if x %}";
  EXPECT_THAT(Rendered(blocks), HasSubstr("nested"));
}

TEST(JinjaLimitsTest, ANamespaceMayHoldItself) {
  EXPECT_EQ(Rendered("{% set ns = namespace() %}{% set ns.me = ns %}"
                     "{% macro m() %}{% endmacro %}{% set ns.m = m %}{{ ns.me.me is defined }}"),
            "True");
}

TEST(JinjaLimitsTest, AFilterCannotLookAheadInItsOwnLoop) {
  for (const char* attribute : {"length", "last", "nextitem", "revindex"}) {
    const std::string name(attribute);
    EXPECT_THAT(Rendered("{% set ns = namespace() %}{% for x in [1, 2, 3] if ns.l is not defined "
                         "or ns.l." +
                         name + " is defined %}{% set ns.l = loop %}{% endfor %}"),
                HasSubstr("cannot look ahead in its own loop"))
        << name;
  }
  EXPECT_EQ(Rendered("{% set ns = namespace() %}{% for x in [1, 2, 3] if ns.l is not defined or "
                     "ns.l.index < 2 %}{% set ns.l = loop %}{{ x }}{% endfor %}"),
            "12");
}

TEST(JinjaLimitsTest, LongChainsOfLoopsAreFreed) {
  EXPECT_EQ(Rendered("{% set r = namespace(v=0) %}{% for i in range(45000) %}{% for x in [r.v] %}"
                     "{% set r.v = loop %}{% endfor %}{% endfor %}{{ r.v.length }}"),
            "1");
}

TEST(JinjaLimitsTest, ALoopMayHoldItself) {
  EXPECT_EQ(Rendered("{% for x in [1, 2] %}{{ loop.changed(loop) }} {% endfor %}"), "True False ");
  auto loop = std::make_shared<jinja::Loop>(std::vector<jinja::Value>(), nullptr);
  const std::weak_ptr<jinja::Loop> watched = loop;
  {
    jinja::Machine short_lived(1000, kTestNow);
    ASSERT_TRUE(loop->Changed({{jinja::Value(loop)}, {}}, short_lived).ok());
    short_lived.KeepLoop(std::move(loop));
  }
  EXPECT_TRUE(watched.expired());
}

TEST(JinjaLimitsTest, LargeTemplatesAreRefused) {
  const std::string large(jinja::kMaxTemplateBytes + 1, ' ');
  EXPECT_EQ(jinja::Parse(large).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::jinja_limits_test
