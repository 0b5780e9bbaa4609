// The page of metrics: its units, its labels, and what it leaves out.

#include "server/admin/metrics_page.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/exposition.h"

namespace tandem::metrics_page_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string MetricsText(const v1::GetStatusResponse& status) {
  return Expose(StatusMetrics(status), ExpositionFormat::kText);
}

TEST(MetricsPageTest, UnitsAreSecondsAndBytes) {
  v1::GetStatusResponse status;
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_name("w");
  worker.set_heartbeat_age_ms(1500);
  v1::LinkStatus& link = *worker.mutable_load()->add_links();
  link.set_peer("w");
  link.set_operation_us(250);
  link.set_probe_gb_per_s(1.5);
  link.set_bytes(77);
  const std::string page = MetricsText(status);
  EXPECT_THAT(page, HasSubstr("tandem_worker_heartbeat_age_seconds{worker=\"w\",role=\"\"} 1.5\n"));
  const std::string labels = R"({worker="w",peer="w",transport=""})";
  EXPECT_THAT(page, HasSubstr("tandem_link_operation_seconds" + labels + " 0.00025\n"));
  EXPECT_THAT(page, HasSubstr("tandem_link_probe_bytes_per_second" + labels + " 1500000000\n"));
  EXPECT_THAT(page, HasSubstr("tandem_link_bytes_total" + labels + " 77\n"));
}

TEST(MetricsPageTest, RefusalsOfTlsAreToldByServerPortAndReason) {
  v1::GetStatusResponse status;
  const auto fill = [](v1::TlsRefusal& refusal, const char* port, const char* reason, int count) {
    refusal.set_port(port);
    refusal.set_reason(reason);
    refusal.set_refused(static_cast<uint64_t>(count));
  };
  fill(*status.add_tls_refusals(), "grpc", "wrong_name", 3);
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_name("w");
  fill(*worker.mutable_load()->add_tls_refusals(), "kv", "untrusted", 4);
  const std::string page = MetricsText(status);
  EXPECT_THAT(page, HasSubstr("tandem_tls_refused_total{server=\"router\",port=\"grpc\","
                              "reason=\"wrong_name\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("tandem_tls_refused_total{server=\"w\",port=\"kv\","
                              "reason=\"untrusted\"} 4\n"));
}

TEST(MetricsPageTest, ALinkHasFailedAfterAHandOffOrAProbeFailed) {
  v1::GetStatusResponse status;
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_name("w");
  const auto add = [&worker](const char* transport) -> v1::LinkStatus& {
    v1::LinkStatus& link = *worker.mutable_load()->add_links();
    link.set_peer("w");
    link.set_transport(transport);
    return link;
  };
  add("ipc");
  add("shm").set_failure("the connection was cut");
  add("tcp").set_probe_failure("too slow");
  const std::string page = MetricsText(status);
  const std::string name = R"(tandem_link_failed{worker="w",peer="w",transport=)";
  EXPECT_THAT(page, HasSubstr(name + "\"ipc\"} 0\n"));
  EXPECT_THAT(page, HasSubstr(name + "\"shm\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(name + "\"tcp\"} 1\n"));
}

TEST(MetricsPageTest, WhatEveryProcessReportsIsLabelledWithItsName) {
  v1::GetStatusResponse status;
  status.set_log_lines_dropped(1);
  status.mutable_connections()->set_open(2);
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_name("w");
  worker.mutable_load()->set_log_lines_dropped(3);
  worker.mutable_load()->mutable_connections()->set_open(4);
  const std::string page = MetricsText(status);
  EXPECT_THAT(page, HasSubstr("# TYPE tandem_log_lines_dropped_total counter\n"
                              "tandem_log_lines_dropped_total{server=\"router\"} 1\n"
                              "tandem_log_lines_dropped_total{server=\"w\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE tandem_connections gauge\n"
                              "tandem_connections{server=\"router\"} 2\n"
                              "tandem_connections{server=\"w\"} 4\n"));
}

TEST(MetricsPageTest, ErrorsOfPredictionsAreLabelledWithWhomTheyAreOf) {
  v1::GetStatusResponse status;
  status.mutable_predictions()->set_policy("auto");
  const auto add = [&status](const char* term, const char* worker, const char* peer) {
    v1::PredictionError& error = *status.mutable_predictions()->add_errors();
    error.set_term(term);
    error.set_worker(worker);
    error.set_peer(peer);
    error.set_error(0.25);
    error.set_compared(7);
  };
  add("ttft", "", "");
  add("ttft", "p0", "");
  add("transfer", "p0", "d0");
  const std::string page = MetricsText(status);
  const std::string name = "tandem_prediction_error_ratio";
  EXPECT_THAT(page, HasSubstr(name + R"({policy="auto",term="ttft"} 0.25)"));
  EXPECT_THAT(page, HasSubstr(name + R"({policy="auto",term="ttft",worker="p0"} 0.25)"));
  EXPECT_THAT(page,
              HasSubstr(name + R"({policy="auto",term="transfer",worker="p0",peer="d0"} 0.25)"));
  EXPECT_THAT(page, HasSubstr("# TYPE tandem_predictions_compared_total counter\n"));
}

TEST(MetricsPageTest, WhatHasNoSampleIsNotOnThePage) {
  const std::string page = MetricsText(v1::GetStatusResponse());
  EXPECT_THAT(page, HasSubstr("tandem_requests_total 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("tandem_resumes_total")));
  EXPECT_THAT(page, Not(HasSubstr("tandem_worker_ready")));
}

}  // namespace
}  // namespace tandem::metrics_page_test
