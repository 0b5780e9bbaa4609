#include "server/config/config_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::config_file_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::Pair;
using Values = std::map<std::string, std::string>;

KnownFlags Known() {
  const std::set<std::string> both = {"model", "log-level", "tls-cert", "port", "drain-seconds"};
  KnownFlags known;
  known.by_command["router"] = both;
  known.by_command["router"].insert({"policy", "http-port", "simulated"});
  known.by_command["worker"] = both;
  known.by_command["worker"].insert({"role", "name", "router", "kv-bytes", "data-port", "device"});
  known.by_command["up"] = both;
  known.by_command["up"].insert({"policy", "http-port", "kv-bytes", "decode", "device"});
  known.by_command["generate"] = {"server", "max-tokens"};
  known.absent = {"simulate"};
  return known;
}

absl::StatusOr<ConfigFile> Parse(const std::string& text) {
  return ConfigFile::Parse("cluster.toml", text, Known());
}

Values ValuesOf(const std::vector<ConfigEntry>& entries) {
  Values values;
  for (const ConfigEntry& entry : entries) values[entry.key] = entry.values.front();
  return values;
}

std::string ErrorOf(const std::string& text) {
  const auto file = Parse(text);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(file.status().message());
}

constexpr char kFile[] = R"(
[shared]
model = /m
log-level = info
[router]
port = 8080
policy = auto
log-level = debug
[worker]
kv-bytes = 1GiB
port = 9000
role = unified
[worker.decode]
kv-bytes = 2GiB
[worker.name.decode-1]
kv-bytes = 3GiB
port = 9001
role = decode
[up]
decode = 2
[generate]
max-tokens = 3
)";

TEST(ConfigFileTest, APartTakesItsOwnSectionsAndTheNarrowerOneBeatsTheWiderOne) {
  const auto file = Parse(kFile);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(
      ValuesOf(file->ForCommand("router")),
      (Values{{"model", "/m"}, {"log-level", "debug"}, {"port", "8080"}, {"policy", "auto"}}));
  EXPECT_EQ(ValuesOf(file->ForCommand("generate")), (Values{{"max-tokens", "3"}}));
  const Values decode = ValuesOf(file->ForWorker("decode", "decode-0"));
  EXPECT_THAT(decode, Contains(Pair("kv-bytes", "2GiB")));
  EXPECT_THAT(decode, Contains(Pair("log-level", "info")));
  EXPECT_THAT(ValuesOf(file->ForWorker("decode", "decode-1")), Contains(Pair("kv-bytes", "3GiB")));
  EXPECT_THAT(ValuesOf(file->ForWorker("prefill", "")), Contains(Pair("kv-bytes", "1GiB")));
}

TEST(ConfigFileTest, TheFileSaysTheRoleOfAWorkerThatOnlyHasAName) {
  const auto file = Parse(kFile);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(ValuesOf(file->ForWorker("", "decode-1")), Contains(Pair("role", "decode")));
  EXPECT_THAT(ValuesOf(file->ForWorker("", "")), Contains(Pair("role", "unified")));
}

TEST(ConfigFileTest, UpTakesWhatItHasOfRouterAndWorkers) {
  const auto file = Parse(kFile);
  ASSERT_TRUE(file.ok()) << file.status();
  const Values up = ValuesOf(file->ForUp());
  EXPECT_THAT(up, Contains(Pair("port", "8080")));  // of the router, not of workers
  EXPECT_THAT(up, Contains(Pair("kv-bytes", "1GiB")));
  EXPECT_THAT(up, Contains(Pair("decode", "2")));
  EXPECT_THAT(up, Contains(Pair("log-level", "info")));  // its own, not the router's
  EXPECT_THAT(up, Not(Contains(Key("role"))));
  EXPECT_THAT(ValuesOf(file->ForRouterOfUp()), Contains(Pair("log-level", "debug")));
  EXPECT_EQ(file->KeysOfUp(), std::set<std::string>{"decode"});
  EXPECT_THAT(file->NamedWorkers(), ElementsAre("decode-1"));
}

TEST(ConfigFileTest, WorkersOfUpTakeAddressesFromTheirOwnSectionAlone) {
  const auto file = Parse(kFile);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(ValuesOf(file->ForWorkerOfUp("decode", "decode-0")), Not(Contains(Key("port"))));
  EXPECT_THAT(ValuesOf(file->ForWorkerOfUp("decode", "decode-1")), Contains(Pair("port", "9001")));
  EXPECT_THAT(ValuesOf(file->ForWorkerOfUp("decode", "decode-1")), Not(Contains(Key("role"))));
}

TEST(ConfigFileTest, UnknownNamesAreErrorsWithTheNearestKnownOne) {
  EXPECT_EQ(ErrorOf("[wroker]\nport = 1\n"),
            "cluster.toml: line 1: there is no section [wroker]: did you mean \"worker\"?");
  EXPECT_EQ(ErrorOf("[worker]\nkv_bytes = 1\n"),
            "cluster.toml: line 2: [worker] has no flag \"kv_bytes\": did you mean \"kv-bytes\"?");
  EXPECT_EQ(ErrorOf("[worker.decode]\n--kv-byte = 1\n"),
            "cluster.toml: line 2: [worker.decode] has no flag \"--kv-byte\": did you mean "
            "\"kv-bytes\"?");
  EXPECT_THAT(ErrorOf("[worker.decoed]\n"), HasSubstr("did you mean \"worker.decode\"?"));
  EXPECT_THAT(ErrorOf("[worker.name.]\n"), HasSubstr("there is no section [worker.name.]"));
  EXPECT_THAT(ErrorOf("[xyzzy]\n"), HasSubstr("there are [shared], [router]"));
  EXPECT_THAT(ErrorOf("[generate]\nquux = 1\n"),
              HasSubstr("`tandem generate --help` lists all flags"));
}

TEST(ConfigFileTest, AKeyInTheWrongSectionIsToldWhereItBelongs) {
  EXPECT_THAT(ErrorOf("[shared]\nkv-bytes = 1\n"), HasSubstr("put it below [worker]"));
  EXPECT_THAT(ErrorOf("[worker]\npolicy = auto\n"), HasSubstr("put it below [router]"));
  EXPECT_THAT(ErrorOf("[worker.decode]\nrole = decode\n"),
              HasSubstr("the name of the section is the role"));
  EXPECT_THAT(ErrorOf("[worker.name.x]\nname = y\n"),
              HasSubstr("the name of the section is the name"));
}

TEST(ConfigFileTest, FlagsOfACommandOfAnotherBuildAreNotJudged) {
  EXPECT_TRUE(Parse("[simulate]\nanything = 1\n").ok());
}

}  // namespace
}  // namespace tandem::config_file_test
