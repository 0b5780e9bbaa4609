// Where batches of spans go: a collector, which may be slow, overloaded or gone, and a file.

#include <sys/stat.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tracing/otlp_http_transport.h"
#include "server/tracing/trace_endpoint.h"
#include "server/tracing/trace_file_transport.h"
#include "tests/support/fake_collector.h"
#include "transfer/media/tcp/socket.h"

namespace tandem::trace_transports_test {
namespace {

using ::testing::HasSubstr;
using Kind = SendResult::Kind;

TimePoint In(Duration time) { return std::chrono::steady_clock::now() + time; }

TEST(OtlpHttpTransportTest, ABatchIsPostedAsJson) {
  FakeCollector collector;
  OtlpHttpTransport transport(collector.url());
  EXPECT_EQ(transport.Send(R"({"resourceSpans":[]})", In(std::chrono::minutes(1))).kind,
            Kind::kTaken);
  ASSERT_EQ(collector.bodies().size(), 1u);
  EXPECT_EQ(collector.bodies()[0].dump(), R"({"resourceSpans":[]})");
}

TEST(OtlpHttpTransportTest, EachBatchHasTheHeadersOfTheEnvironment) {
  FakeCollector collector;
  const auto headers =
      TraceHeaders({.headers = "x-key=a%20b%3D, x-team=one", .traces_headers = "x-team=two"});
  ASSERT_TRUE(headers.ok()) << headers.status();
  OtlpHttpTransport transport(collector.url(), *headers);
  EXPECT_EQ(transport.Send("{}", In(std::chrono::minutes(1))).kind, Kind::kTaken);
  EXPECT_EQ(collector.Header("x-key"), "a b=");
  EXPECT_EQ(collector.Header("x-team"), "two");
}

TEST(OtlpHttpTransportTest, ACollectorThatIsOverloadedSaysWhenToComeBack) {
  FakeCollector collector({{.status = 503, .headers = {{"Retry-After", "7"}}},
                           {.status = 429},
                           {.status = 504},
                           {.status = 200, .body = "{}"}});
  OtlpHttpTransport transport(collector.url());
  const SendResult busy = transport.Send("{}", In(std::chrono::minutes(1)));
  EXPECT_EQ(busy.kind, Kind::kRetry);
  EXPECT_EQ(busy.retry_after, std::chrono::seconds(7));
  EXPECT_THAT(busy.why, HasSubstr("503"));
  const SendResult limited = transport.Send("{}", In(std::chrono::minutes(1)));
  EXPECT_EQ(limited.kind, Kind::kRetry);
  EXPECT_FALSE(limited.retry_after);
  EXPECT_EQ(transport.Send("{}", In(std::chrono::minutes(1))).kind, Kind::kRetry);
  EXPECT_EQ(transport.Send("{}", In(std::chrono::minutes(1))).kind, Kind::kTaken);
}

TEST(OtlpHttpTransportTest, WhatACollectorRefusesIsNotSentAgainAndItsWordsAreKept) {
  FakeCollector collector({{.status = 400, .body = "no such field"}});
  OtlpHttpTransport transport(collector.url());
  const SendResult refused = transport.Send("{}", In(std::chrono::minutes(1)));
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_THAT(refused.why, HasSubstr("no such field"));
}

TEST(OtlpHttpTransportTest, ACollectorThatIsGoneMayComeBack) {
  uint16_t port = 0;
  {
    const auto listener = Listen("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    port = LocalPort(*listener);
  }
  OtlpHttpTransport transport(fmt::format("http://127.0.0.1:{}/v1/traces", port));
  const SendResult gone = transport.Send("{}", In(std::chrono::minutes(1)));
  EXPECT_EQ(gone.kind, Kind::kRetry);
  EXPECT_THAT(gone.why, HasSubstr(fmt::format("http://127.0.0.1:{}: ", port)));
  EXPECT_EQ(gone.why.find("/v1/traces"), std::string::npos) << "a path may be a secret";
}

TEST(OtlpHttpTransportTest, ASlowCollectorIsNotWaitedForBeyondTheDeadline) {
  FakeCollector collector(std::deque<HttpResponse>(1, {.status = 0}));
  OtlpHttpTransport transport(collector.url());
  EXPECT_EQ(transport.Send("{}", In(std::chrono::milliseconds(50))).kind, Kind::kRetry);
  EXPECT_EQ(collector.requests(), 1u);
}

TEST(OtlpHttpTransportTest, ASendInProgressEndsWhenTheProcessWantsToEnd) {
  FakeCollector collector(std::deque<HttpResponse>(1, {.status = 0}));
  OtlpHttpTransport transport(collector.url());
  SendResult result;
  // Without the hurry the test would last a minute more than it may.
  std::thread sender([&] { result = transport.Send("{}", In(std::chrono::minutes(5))); });
  while (collector.requests() == 0) std::this_thread::yield();
  transport.HurryUntil(std::chrono::steady_clock::now());
  sender.join();
  EXPECT_EQ(result.kind, Kind::kRetry);
  EXPECT_EQ(transport.Send("{}", In(std::chrono::minutes(1))).kind, Kind::kRetry);
  EXPECT_EQ(collector.requests(), 1u) << "nothing is sent any more";
}

class TraceFileTransportTest : public testing::Test {
 protected:
  TraceFileTransportTest()
      : path_(fmt::format("{}/tandem_trace_{}_{}", testing::TempDir(), getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    Remove();
  }
  ~TraceFileTransportTest() override { Remove(); }
  void Remove() {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + ".1");
  }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::unique_ptr<TraceFileTransport> Open(uint64_t max_bytes) {
    auto file = TraceFileTransport::Open(path_, max_bytes);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  static Kind Send(SpanTransport& file, const std::string& batch) {
    return file.Send(batch, kNoDeadline).kind;
  }

  const std::string path_;
};

TEST_F(TraceFileTransportTest, EachBatchIsALineAndAnotherProcessGoesOnBehindThem) {
  EXPECT_EQ(Send(*Open(100), "{\"a\":1}"), Kind::kTaken);
  EXPECT_EQ(Send(*Open(100), "{\"b\":2}"), Kind::kTaken);
  EXPECT_EQ(Read(path_), "{\"a\":1}\n{\"b\":2}\n");
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "for the process's user alone";
}

TEST_F(TraceFileTransportTest, ItsSizeIsBoundedAndOneOlderFileIsKept) {
  const auto file = Open(10);
  for (const char* batch : {"1234", "5678", "abcd", "efgh", "ijkl"}) {
    EXPECT_EQ(Send(*file, batch), Kind::kTaken);
  }
  EXPECT_EQ(Read(path_), "ijkl\n");
  EXPECT_EQ(Read(path_ + ".1"), "abcd\nefgh\n");
  EXPECT_EQ(Send(*file, "longer than all"), Kind::kRefused);
}

TEST_F(TraceFileTransportTest, AFileThatCannotBeWrittenIsNamed) {
  const auto file = TraceFileTransport::Open("/nowhere/traces", 100);
  EXPECT_TRUE(absl::IsInvalidArgument(file.status()));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("/nowhere/traces"));
}

std::string UrlOf(const TraceTuning& tuning) {
  const auto url = TraceUrl(tuning);
  return url.ok() ? *url : std::string(url.status().message());
}

TEST(TraceEndpointTest, TheFlagCountsBeforeTheEnvironmentAndPathsAreCompleted) {
  EXPECT_EQ(UrlOf({}), "");
  EXPECT_EQ(UrlOf({.endpoint = "http://a:4318"}), "http://a:4318/v1/traces");
  EXPECT_EQ(UrlOf({.endpoint = "http://a:4318/"}), "http://a:4318/v1/traces");
  EXPECT_EQ(UrlOf({.endpoint = "https://a/own/path"}), "https://a/own/path");
  const TraceEnvironment base = {.endpoint = "http://b:4318/prefix/"};
  EXPECT_EQ(UrlOf({.environment = base}), "http://b:4318/prefix/v1/traces");
  const TraceEnvironment both = {.endpoint = "http://b", .traces_endpoint = "http://c/as-it-is"};
  EXPECT_EQ(UrlOf({.environment = both}), "http://c/as-it-is");
  EXPECT_EQ(UrlOf({.endpoint = "http://a", .environment = both}), "http://a/v1/traces");
}

TEST(TraceEndpointTest, OnlySchemeAndHostAreShown) {
  EXPECT_EQ(HostOfUrl("https://a:1/secret?key=2"), "https://a:1");
  EXPECT_EQ(HostOfUrl("http://a?key=2"), "http://a");
  EXPECT_EQ(HostOfUrl("http://[::1]:4318"), "http://[::1]:4318");
}

TEST(TraceEndpointTest, WhatIsNoUrlIsNamedAndAPasswordIsNotRepeated) {
  EXPECT_THAT(UrlOf({.endpoint = "a:4318"}),
              HasSubstr("--trace-endpoint \"a:4318\" is no URL of a collector"));
  EXPECT_THAT(UrlOf({.endpoint = "grpc://a:4317"}), HasSubstr("grpc://a:4317"));
  EXPECT_THAT(UrlOf({.endpoint = "http://"}), HasSubstr("is no URL"));
  EXPECT_THAT(UrlOf({.endpoint = "http://a b"}), HasSubstr("is no URL"));
  EXPECT_THAT(UrlOf({.environment = {.endpoint = "b:1"}}),
              HasSubstr("OTEL_EXPORTER_OTLP_ENDPOINT \"b:1\""));
  const std::string secret = UrlOf({.endpoint = "http://me:hunter2@a:4318"});
  EXPECT_THAT(secret, HasSubstr("has a user in its URL"));
  EXPECT_EQ(secret.find("hunter2"), std::string::npos);
}

std::string HeadersOf(const TraceEnvironment& environment) {
  const auto headers = TraceHeaders(environment);
  return headers.ok() ? fmt::format("{}", fmt::join(*headers, ";"))
                      : std::string(headers.status().message());
}

TEST(TraceEndpointTest, WhatIsNoHeaderIsNamedAndItsValueIsNotRepeated) {
  EXPECT_EQ(HeadersOf({}), "");
  EXPECT_EQ(HeadersOf({.headers = "Authorization=Bearer%20hunter2"}),
            "Authorization: Bearer hunter2");
  for (const char* list :
       {"x y=hunter2", "x=hunter2%0d%0aevil: 1", "host=hunter2", "hunter2", "a=1,x=hunter2%zz"}) {
    for (const TraceEnvironment& environment :
         {TraceEnvironment{.headers = list}, TraceEnvironment{.traces_headers = list}}) {
      const std::string refused = HeadersOf(environment);
      EXPECT_THAT(refused, HasSubstr("OTEL_EXPORTER_OTLP_"));
      EXPECT_THAT(refused, HasSubstr(" is no ")) << list;
      EXPECT_EQ(refused.find("hunter2"), std::string::npos) << refused;
    }
  }
  EXPECT_THAT(HeadersOf({.headers = "a=1,hunter2"}), HasSubstr("entry 2"));
  EXPECT_THAT(HeadersOf({.headers = "x y=1"}), HasSubstr("\"x y\" is no header"));
}

std::string AttributesOf(const TraceEnvironment& environment) {
  const auto attributes = ResourceAttributes(environment, "tandem-router");
  if (!attributes.ok()) return std::string(attributes.status().message());
  std::string all;
  for (const SpanAttribute& one : *attributes) {
    all += one.key + "=" + std::get<std::string>(one.value) + ";";
  }
  return all;
}

TEST(TraceEndpointTest, TheEnvironmentNamesTheServiceAndMore) {
  EXPECT_EQ(AttributesOf({}), "service.name=tandem-router;");
  EXPECT_EQ(AttributesOf({.resource_attributes = "a=1, b=x%2Cy ,service.name=mine"}),
            "a=1;b=x,y;service.name=mine;");
  EXPECT_EQ(AttributesOf({.service_name = "other", .resource_attributes = "service.name=mine"}),
            "service.name=other;");
  EXPECT_THAT(AttributesOf({.resource_attributes = "a=1,b"}), HasSubstr("\"b\" is no key=value"));
  EXPECT_THAT(AttributesOf({.resource_attributes = "a=%zz"}), HasSubstr("a=%zz"));
}

}  // namespace
}  // namespace tandem::trace_transports_test
