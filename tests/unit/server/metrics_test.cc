// What Prometheus reads of a router: the page, and the server that hands it out.

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/exposition.h"
#include "server/admin/metrics_page.h"
#include "server/admin/metrics_server.h"
#include "tests/support/http_peer.h"

namespace tandem::metrics_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::GetStatusResponse ScrapedStatus() {
  v1::GetStatusResponse status;
  status.set_ready(true);
  status.set_requests_total(12);
  status.mutable_resumes()->set_p99_ms(250);
  status.mutable_resumes()->mutable_waited()->set_p99_ms(2250);
  v1::ResumeCause& cause = *status.mutable_resumes()->add_causes();
  cause.set_cause("lease");
  cause.set_resumes(3);
  v1::WorkerStatus& prefill = *status.add_workers();
  prefill.set_name("prefill-0");
  prefill.set_role("prefill");
  prefill.set_alive(true);
  prefill.mutable_load()->set_total_blocks(64);
  v1::LinkStatus& slow = *prefill.mutable_load()->add_links();
  slow.set_peer("decode \"0\"");
  slow.set_transport("tcp");
  slow.set_best_probe_gb_per_s(2.5);
  slow.set_gb_per_s(0.25);
  slow.set_fastest_gb_per_s(0.5);
  slow.set_setup_us(1500);
  slow.set_fallbacks(4);
  v1::LinkStatus& unnamed = *prefill.mutable_load()->add_links();
  unnamed.set_peer("tcp:127.0.0.1:7001");
  unnamed.set_transport("nccl");
  v1::LinkStatus& elsewhere = *prefill.mutable_load()->add_links();
  elsewhere.set_peer("decode-1");
  elsewhere.set_transport("shm");
  elsewhere.set_unreachable("another host");
  v1::LinkStatus& left_out = *prefill.mutable_load()->add_links();
  left_out.set_transport("ipc");
  left_out.set_failure("no shared memory");
  v1::WorkerStatus& decode = *status.add_workers();
  decode.set_name("decode \"0\"");
  v1::WorkerStatus& stuck = *status.add_workers();
  stuck.set_name("decode-1");
  stuck.set_role("decode");
  stuck.set_alive(true);
  stuck.mutable_load()->set_not_ready("engine: no progress");
  stuck.mutable_load()->set_starting(true);
  return status;
}

std::string PageOf(const v1::GetStatusResponse& status) {
  return Expose(StatusMetrics(status), ExpositionFormat::kText);
}

TEST(MetricsPageTest, HasTheRouterItsWorkersAndTheLinksBetweenThem) {
  const std::string page = PageOf(ScrapedStatus());
  const std::string link = R"({worker="prefill-0",peer="decode \"0\"",transport="tcp"})";
  for (const std::string& line : {
           std::string("# TYPE tandem_requests_total counter\ntandem_requests_total 12\n"),
           std::string("tandem_resumes_total{cause=\"lease\"} 3\n"),
           std::string("tandem_resume_pause_p99_seconds 0.25\n"),
           std::string("tandem_resume_waited_p99_seconds 2.25\n"),
           std::string(R"(tandem_worker_ready{worker="prefill-0",role="prefill"} 1)"
                       "\n"),
           std::string(R"(tandem_worker_ready{worker="decode-1",role="decode"} 0)"
                       "\n"),
           std::string(R"(tandem_worker_starting{worker="prefill-0",role="prefill"} 0)"
                       "\n"),
           std::string(R"(tandem_worker_starting{worker="decode-1",role="decode"} 1)"
                       "\n"),
           std::string(R"(tandem_kv_blocks{worker="prefill-0",role="prefill",state="total"} 64)"),
           "tandem_link_fallbacks_total" + link + " 4\n",
           "tandem_link_best_probe_bytes_per_second" + link + " 2500000000\n",
           "tandem_link_bytes_per_second" + link + " 250000000\n",
           "tandem_link_fastest_bytes_per_second" + link + " 500000000\n",
           "tandem_link_setup_seconds" + link + " 0.0015\n",
       }) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(MetricsPageTest, WaysThatCannotBeAreNoLinks) {
  const std::string page = PageOf(ScrapedStatus());
  EXPECT_THAT(page, Not(HasSubstr("transport=\"shm\"")));
  EXPECT_THAT(page, Not(HasSubstr("transport=\"ipc\"")));
  EXPECT_THAT(page, Not(HasSubstr("transport=\"nccl\"")));
}

TEST(MetricsPageTest, AWorkersOwnPageHasTheSeriesThatItsRouterHasOfIt) {
  const v1::GetStatusResponse status = ScrapedStatus();
  const std::string own =
      Expose(WorkerMetrics(status.workers(0), {"decode \"0\""}), ExpositionFormat::kText);
  const std::string of_router = PageOf(status);
  int series = 0;
  const std::vector<std::string> lines = absl::StrSplit(own, '\n');
  for (const std::string& line : lines) {
    if (line.empty() || line[0] == '#') continue;
    EXPECT_THAT(of_router, HasSubstr(line + "\n"));
    ++series;
  }
  EXPECT_GT(series, 50);
  EXPECT_THAT(own, HasSubstr("tandem_worker_ready{worker=\"prefill-0\",role=\"prefill\"} 1\n"));
  EXPECT_THAT(own, HasSubstr("peer=\"decode \\\"0\\\"\",transport=\"tcp\""));
  EXPECT_THAT(own, Not(HasSubstr("peer=\"tcp:127.0.0.1:7001\"")));
  EXPECT_THAT(own, Not(HasSubstr("heartbeat_age"))) << "only routers know it";
}

// One gauge whose value rises with each call, and readiness that a test sets.
class ScriptedPages {
 public:
  AdminPages pages() {
    const auto report = [](const char* name, bool ok) {
      return HealthReport{.checks = {{.name = name, .problem = ok ? "" : "it hangs"}}};
    };
    return {.metrics =
                [this] {
                  return std::vector<MetricFamily>{
                      {.name = "calls",
                       .help = "h",
                       .samples = {{.labels = {}, .value = static_cast<double>(++calls)}}}};
                },
            .live = [this, report] { return report("loop", live.load()); },
            .ready = [this, report] { return report("step", ready.load()); }};
  }

  std::atomic<int> calls = 0;
  std::atomic<bool> live = true;
  std::atomic<bool> ready = true;
};

TEST(MetricsServerTest, ServesThePageInTheFormatThatTheClientWants) {
  ScriptedPages scripted;
  const auto server = StartMetricsServer("127.0.0.1", 0, scripted.pages());
  ASSERT_TRUE(server.ok()) << server.status();
  HttpPeer client((*server)->port());
  for (const char* value : {"1", "2"}) {
    const HttpReply answer = client.Get("/metrics");
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, StartsWith(std::string("# HELP calls h\n# TYPE calls gauge\ncalls ") +
                                        value + "\n"));
    EXPECT_EQ(answer.Header("Content-Type"), "text/plain; version=0.0.4");
  }
  ASSERT_TRUE(
      client.Send("GET /metrics HTTP/1.1\r\nHost: x\r\n"
                  "Accept: application/openmetrics-text;version=1.0.0\r\n\r\n"));
  const HttpReply open_metrics = client.Read();
  EXPECT_THAT(open_metrics.body, AllOf(HasSubstr("calls 3\n"), EndsWith("# EOF\n")));
  EXPECT_EQ(open_metrics.Header("Content-Type"),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_EQ(client.Get("/elsewhere").status, 404);
  EXPECT_EQ(client.Post("/metrics", "body").status, 413);
}

TEST(MetricsServerTest, WhatItRefusesIsOnItsOwnPage) {
  ScriptedPages scripted;
  const auto server = StartMetricsServer("127.0.0.1", 0, scripted.pages());
  ASSERT_TRUE(server.ok()) << server.status();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(HttpPeer((*server)->port()).Post("/metrics", "body").status, 413);
  }
  const HttpReply page = HttpGet((*server)->port(), "/metrics");
  EXPECT_THAT(page.body,
              HasSubstr("tandem_metrics_port_requests_refused_total{status=\"413\"} 2\n"));
}

TEST(MetricsServerTest, LivenessAndReadinessNameTheirChecks) {
  ScriptedPages scripted;
  const auto server = StartMetricsServer("127.0.0.1", 0, scripted.pages());
  ASSERT_TRUE(server.ok()) << server.status();
  HttpPeer client((*server)->port());
  EXPECT_EQ(client.Get("/healthz").status, 200);
  EXPECT_EQ(client.Get("/readyz").body,
            "{\"ok\":true,\"checks\":[{\"name\":\"step\",\"ok\":true}]}\n");
  scripted.ready = false;
  EXPECT_EQ(client.Get("/healthz").status, 503);
  const HttpReply ready = client.Get("/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.Header("Content-Type"), "application/json");
  EXPECT_THAT(ready.body, HasSubstr("\"problem\":\"it hangs\""));
  EXPECT_EQ(client.Get("/livez").status, 200) << "what is not ready may live";
  scripted.live = false;
  EXPECT_EQ(client.Get("/livez").status, 503);
  EXPECT_THAT(client.Get("/livez").body, HasSubstr("\"name\":\"loop\",\"ok\":false"));
}

TEST(MetricsServerTest, HealthAndVersionAreThereUnderTheNamesThatOthersUse) {
  ScriptedPages scripted;
  const auto server = HttpServer::Start({}, HealthRoutes(scripted.pages(), "1.2.3"));
  ASSERT_TRUE(server.ok()) << server.status();
  HttpPeer client((*server)->port());
  EXPECT_EQ(client.Get("/version").body, "{\"version\":\"1.2.3\"}\n");
  for (const char* path : {"/health", "/ping"}) {
    scripted.ready = true;
    EXPECT_EQ(client.Get(path).status, 200);
    scripted.ready = false;
    EXPECT_EQ(client.Get(path).status, 503);
  }
}

TEST(MetricsServerTest, APortThatIsTakenIsNamed) {
  ScriptedPages scripted;
  const auto first = StartMetricsServer("127.0.0.1", 0, scripted.pages());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = StartMetricsServer("127.0.0.1", (*first)->port(), scripted.pages());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("127.0.0.1:" + std::to_string((*first)->port())));
}

TEST(MetricsServerTest, TlsNeedsTheCertificateOfTheProcess) {
  const TlsFiles files = {.cert = "cert.pem", .key = "key.pem", .ca = "ca.pem"};
  EXPECT_EQ(MetricsTlsFiles("off", files)->cert, "");
  EXPECT_EQ(MetricsTlsFiles("on", files)->cert, "cert.pem");
  EXPECT_EQ(MetricsTlsFiles("on", files)->client_ca, "");
  EXPECT_EQ(MetricsTlsFiles("require", files)->client_ca, "ca.pem");
  EXPECT_TRUE(MetricsTlsFiles("off", {}).ok());
  const absl::Status without = MetricsTlsFiles("require", {}).status();
  EXPECT_EQ(without.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(without.message()),
              HasSubstr("--metrics-tls require: give --tls-cert, --tls-key and --tls-ca"));
}

}  // namespace
}  // namespace tandem::metrics_test
