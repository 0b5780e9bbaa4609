// One request over HTTP through a router, a prefill worker and a decode worker, as a collector sees
// it.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/commands/child_process.h"
#include "tandem/v1/inference.grpc.pb.h"
#include "tests/support/fake_collector.h"
#include "tests/support/http_peer.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"
#include "tests/support/wrapped_binary.h"

namespace tandem::trace_tree_test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kClientSpan[] = "b7ad6b7169203331";

// Spans of one request that was handed off: the service that made each, and the span above it.
struct Expected {
  const char* service;
  const char* name;
  const char* parent;
};
constexpr Expected kTree[] = {
    {"tandem-router", "generate sample", ""},
    {"tandem-router", "tokenize", "generate sample"},
    {"tandem-router", "route", "generate sample"},
    {"tandem-router", "attempt", "generate sample"},
    {"tandem-router", "reserve", "attempt"},
    {"tandem-router", "prefill", "attempt"},
    {"tandem-router", "hand_off", "attempt"},
    {"tandem-router", "decode", "attempt"},
    {"tandem-decode", "worker reserve", "reserve"},
    {"tandem-prefill", "worker prefill", "prefill"},
    {"tandem-prefill", "prefill", "worker prefill"},
    {"tandem-prefill", "send_kv", "worker prefill"},
    {"tandem-decode", "worker decode", "decode"},
    {"tandem-decode", "receive_kv", "worker decode"},
    {"tandem-decode", "decode", "worker decode"},
};

// Two spans have the name "prefill", and two "decode".
std::string KeyOf(const Json& span) {
  return fmt::format("{}/{}", span["service"].get<std::string>(), span["name"].get<std::string>());
}

int64_t Nanos(const Json& span, const char* key) {
  return std::stoll(span[key].get<std::string>());
}
int64_t Length(const Json& span) {
  return Nanos(span, "endTimeUnixNano") - Nanos(span, "startTimeUnixNano");
}

std::string Attribute(const Json& span, const std::string& key) {
  for (const Json& attribute : span["attributes"]) {
    if (attribute["key"] == key) return attribute["value"].begin()->dump();
  }
  return "";
}

class TraceTreeTest : public testing::Test {
 protected:
  TraceTreeTest()
      : log_(fmt::format("{}/tandem_trace_log_{}", testing::TempDir(), getpid())),
        port_(FreePort()),
        cluster_({.binary = WrappedBinary("", "2>>" + log_),
                  .unified = 0,
                  .router_flags = {fmt::format("--http-port={}", port_), "--trace-sample=0",
                                   "--log-format=json", "--log-requests",
                                   "--trace-endpoint=" + collector_.url()},
                  .worker_flags = {"--trace-endpoint=" + collector_.url(), "--log-format=json"}}) {}
  ~TraceTreeTest() override { unlink(log_.c_str()); }

  void Complete(const std::string& headers) {
    const Json body = {{"prompt", "It is a truth"}, {"max_tokens", 6}, {"ignore_eos", true}};
    const HttpReply reply = HttpPeer(port_).Post("/v1/completions", body.dump(), headers);
    EXPECT_EQ(reply.status, 200) << reply.body;
  }
  // A request over gRPC with this metadata.
  void Generate(const std::string& traceparent) {
    const auto stub = v1::Inference::NewStub(
        grpc::CreateChannel(cluster_.address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.AddMetadata("traceparent", traceparent);
    const auto stream = stub->Generate(&context, TextRequest("It is", v1::ROUTE_DISAGGREGATED, 2));
    v1::GenerateResponse response;
    while (stream->Read(&response)) {
    }
    EXPECT_TRUE(stream->Finish().ok());
  }

  FakeCollector collector_;
  const std::string log_;
  const uint16_t port_;
  TestCluster cluster_;
};

std::set<std::string> KeysOf(const std::vector<Json>& spans) {
  std::set<std::string> keys;
  for (const Json& span : spans) keys.insert(KeyOf(span));
  return keys;
}

bool IsWhole(const std::vector<Json>& spans) {
  const std::set<std::string> keys = KeysOf(spans);
  return std::ranges::all_of(kTree, [&keys](const Expected& one) {
    return keys.contains(fmt::format("{}/{}", one.service, one.name));
  });
}

TEST_F(TraceTreeTest, ARequestIsOneTreeBelowTheSpanOfItsClient) {
  Complete(
      fmt::format("traceparent: 00-{}-{}-01\r\ntracestate: vendor=1\r\n", kTrace, kClientSpan));
  const std::vector<Json> spans = collector_.AwaitSpans(IsWhole);
  std::map<std::string, Json> by_id;
  for (const Json& span : spans) {
    EXPECT_EQ(span["traceId"], kTrace) << KeyOf(span);
    EXPECT_EQ(span["traceState"], "vendor=1") << KeyOf(span);
    EXPECT_FALSE(span.contains("status")) << KeyOf(span) << " failed";
    EXPECT_TRUE(by_id.emplace(span["spanId"], span).second) << KeyOf(span);
  }
  for (const Expected& expected : kTree) {
    const auto found = std::ranges::find_if(spans, [&expected](const Json& span) {
      return span["service"] == expected.service && span["name"] == expected.name;
    });
    ASSERT_NE(found, spans.end()) << expected.name;
    const std::string parent = (*found)["parentSpanId"];
    if (*expected.parent == 0) {
      EXPECT_EQ(parent, kClientSpan);
      continue;
    }
    ASSERT_TRUE(by_id.contains(parent)) << expected.name;
    const Json& above = by_id.at(parent);
    EXPECT_EQ(above["name"], expected.parent) << expected.name;
    EXPECT_LE(Length(*found), Length(above)) << expected.name;
    if (above["service"] != (*found)["service"]) continue;  // clocks are compared within a process
    EXPECT_GE(Nanos(*found, "startTimeUnixNano"), Nanos(above, "startTimeUnixNano"));
    EXPECT_LE(Nanos(*found, "endTimeUnixNano"), Nanos(above, "endTimeUnixNano"));
  }
  const auto of = [&spans](const std::string& key) {
    return *std::ranges::find_if(spans, [&key](const Json& span) { return KeyOf(span) == key; });
  };
  const auto begins = [&of](const char* key) { return Nanos(of(key), "startTimeUnixNano"); };
  EXPECT_LE(begins("tandem-router/tokenize"), begins("tandem-router/route"));
  EXPECT_LE(begins("tandem-router/route"), begins("tandem-router/attempt"));
  EXPECT_LE(begins("tandem-router/reserve"), begins("tandem-router/prefill"));
  EXPECT_LE(begins("tandem-router/prefill"), begins("tandem-router/decode"));
  EXPECT_EQ(Attribute(of("tandem-router/generate sample"), "gen_ai.usage.output_tokens"), "\"6\"");
  const std::string sent = Attribute(of("tandem-prefill/send_kv"), "tandem.kv.bytes");
  EXPECT_NE(sent, "");
  EXPECT_EQ(Attribute(of("tandem-decode/receive_kv"), "tandem.kv.bytes"), sent);
  for (const Json& span : spans) EXPECT_EQ(span.dump().find("truth"), std::string::npos);
}

TEST_F(TraceTreeTest, TheLogIsJsonAndTheLineOfARequestNamesItsTrace) {
  Complete(fmt::format("traceparent: 00-{}-{}-01\r\nx-request-id: asked\r\n", kTrace, kClientSpan));
  const std::vector<Json> spans = collector_.AwaitSpans(IsWhole);
  EXPECT_EQ(cluster_.Terminate("router"), 0);
  const auto root = std::ranges::find(spans, Json("generate sample"),
                                      [](const Json& span) { return span["name"]; });
  ASSERT_NE(root, spans.end());
  int requests = 0;
  std::ifstream log(log_);
  for (std::string line; std::getline(log, line);) {
    const Json json = ParseJson(line);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_TRUE(json.contains("time") && json.contains("level") && json.contains("process"))
        << line;
    EXPECT_EQ(line.find("truth"), std::string::npos) << "text of a prompt";
    if (json["message"] != "request") continue;
    ++requests;
    EXPECT_EQ(json["process"], "router");
    EXPECT_EQ(json["request_id"], "asked");
    EXPECT_EQ(json["trace_id"], kTrace);
    EXPECT_EQ(json["span_id"], (*root)["spanId"]);
    EXPECT_EQ(json["completion_tokens"], 6);
    EXPECT_EQ(json["route"], "disaggregated");
    EXPECT_EQ(json["prefill"], "prefill-0");
    EXPECT_EQ(json["status"], "OK");
    EXPECT_GT(json["ttft_ms"].get<double>(), 0);
  }
  EXPECT_EQ(requests, 1) << "one line, although the level is error";
}

TEST_F(TraceTreeTest, TheFlagOfTheClientDecidesOverGrpcAndMalformedHeadersAreIgnored) {
  const std::string other = "11111111111111111111111111111111";
  Generate(fmt::format("00-{}-{}-00", other, kClientSpan));  // not sampled
  Generate(fmt::format("00-{}-{}-01", other, "no-span"));    // malformed, and the ratio is 0
  Complete("");                                              // none
  Generate(fmt::format("00-{}-{}-01", kTrace, kClientSpan));
  for (const Json& span : collector_.AwaitSpans(IsWhole)) EXPECT_EQ(span["traceId"], kTrace);
  const HttpReply metrics = HttpGet(port_, "/metrics");
  EXPECT_THAT(metrics.body, HasSubstr("tandem_trace_spans_exported_total"));
  EXPECT_THAT(metrics.body, HasSubstr("tandem_trace_spans_dropped_total{why=\"queue_full\"} 0"));
}

// What a router that does not start says, and its exit status.
CommandResult RouterWith(const std::string& flags) {
  return Shell("router --port 0 --model " + SampleModel() + " " + flags + " 2>&1");
}

TEST(TraceFlagsTest, WhatCannotBeUsedEndsTheStartAndIsNamed) {
  const CommandResult url = RouterWith("--trace-endpoint a:4318 --log-level off");
  EXPECT_EQ(url.exit_status, 1);
  EXPECT_THAT(url.output, HasSubstr("error: INVALID_ARGUMENT: --trace-endpoint \"a:4318\""));
  EXPECT_EQ(RouterWith("--trace-sample 2").exit_status, 2);
  EXPECT_EQ(RouterWith("--log-format xml").exit_status, 2);
  const CommandResult json =
      RouterWith("--trace-file /nowhere/x --log-format json --log-level off");
  EXPECT_EQ(json.exit_status, 1);
  const Json line = ParseJson(json.output);
  ASSERT_TRUE(line.is_object()) << json.output;
  EXPECT_EQ(line["level"], "error");
  EXPECT_THAT(line["message"].get<std::string>(), HasSubstr("--trace-file /nowhere/x"));
}

TEST(TraceFileTest, UpGivesEachOfItsProcessesAFile) {
  const std::string path = fmt::format("{}/tandem_up_traces_{}", testing::TempDir(), getpid());
  auto up = ChildProcess::Start(
      {"up", "--model=" + SampleModel(), "--port=0", "--no-http", "--unified=0", "--threads=1",
       "--profile-at-start=off", "--canary-seconds=0", "--trace-file=" + path},
      DaemonBinary());
  ASSERT_TRUE(up.ok()) << up.status();
  Client client(up->TakeReadyLine());
  ASSERT_TRUE(client.WaitUntilConnected(std::chrono::minutes(1)));
  EXPECT_TRUE(Ask(client, TextRequest("It was", v1::ROUTE_DISAGGREGATED, 2)).status.ok());
  up->Signal(SIGTERM);
  int how = 0;
  EXPECT_EQ(waitpid(up->pid(), &how, 0), up->pid());
  std::set<std::string> traces;
  for (const char* name : {"router", "prefill-0", "decode-0"}) {
    const std::string file = path + "." + name;
    std::ifstream lines(file);
    std::string line;
    EXPECT_TRUE(std::getline(lines, line)) << file;
    const Json json = ParseJson(line);
    ASSERT_TRUE(json.is_object()) << line;
    traces.insert(json["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]);
    unlink(file.c_str());
  }
  EXPECT_EQ(traces.size(), 1u) << "all of the one request";
}

}  // namespace
}  // namespace tandem::trace_tree_test
