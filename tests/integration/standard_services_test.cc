// The standard services: health and reflection that every gRPC tool asks for, metrics over HTTP.

#include <string>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/http_peer.h"
#include "tests/support/test_cluster.h"

namespace tandem::standard_services_test {
namespace {

using ::testing::HasSubstr;

TEST(StandardServicesTest, HealthSaysServingAndReflectionListsOurServices) {
  TestCluster cluster({.prefill = 0, .decode = 0});
  constexpr char kServing[] = "\x08\x01";          // HealthCheckResponse.status = SERVING
  const std::string list_services("\x3a\x00", 2);  // ServerReflectionRequest.list_services
  EXPECT_EQ(CallByBytes(cluster.address(), "/grpc.health.v1.Health/Check", ""), kServing);
  const std::string services =
      CallByBytes(cluster.address(),
                  "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services);
  EXPECT_THAT(services, HasSubstr("tandem.v1.Inference"));
  EXPECT_THAT(services, HasSubstr("tandem.v1.Cluster"));
}

// HealthCheckRequest.service
std::string HealthOf(const std::string& address, const std::string& service) {
  std::string request = "\x0a";
  request += static_cast<char>(service.size());
  return CallByBytes(address, "/grpc.health.v1.Health/Check", request + service);
}

TEST(StandardServicesTest, HealthIsThereForEachServiceByItsName) {
  TestCluster cluster({.prefill = 0, .decode = 0});
  constexpr char kServing[] = "\x08\x01";
  constexpr char kNotServing[] = "\x08\x02";
  const auto await = [&cluster](const std::string& status) {
    while (HealthOf(cluster.address(), "tandem.v1.Inference") != status) std::this_thread::yield();
  };
  await(kServing);
  std::string worker;
  cluster.WaitFor("the worker", [&worker](const v1::GetStatusResponse& status) {
    if (status.workers_size() > 0) worker = status.workers(0).address();
    return !worker.empty();
  });
  EXPECT_EQ(HealthOf(worker, "tandem.v1.Worker"), kServing);
  cluster.Kill("unified-0");
  await(kNotServing);
  EXPECT_EQ(HealthOf(cluster.address(), "tandem.v1.Cluster"), kServing)
      << "workers may still register";
}

TEST(StandardServicesTest, ARouterTriesItsRoutesBeforeClientsDo) {
  const uint16_t port = FreePort();
  TestCluster cluster(
      {.router_flags = {"--canary-seconds=30", fmt::format("--metrics-port={}", port)}});
  cluster.WaitFor("tokens over both routes", [](const v1::GetStatusResponse& status) {
    return status.route_proofs_size() == 2 && status.route_proofs(0).age_ms() > 0 &&
           status.route_proofs(1).age_ms() > 0;
  });
  const HttpReply ready = HttpGet(port, "/readyz");
  EXPECT_EQ(ready.status, 200) << ready.body;
  EXPECT_THAT(ready.body, HasSubstr("{\"name\":\"canary\",\"ok\":true,\"age_seconds\":"));
  EXPECT_THAT(HttpGet(port, "/metrics").body,
              HasSubstr("tandem_canaries_total{route=\"disaggregated\"} 1\n"));
  cluster.WaitUntilIdle();
}

TEST(StandardServicesTest, AWorkerServesItsOwnMetricsAndHealth) {
  const uint16_t port = FreePort();
  TestCluster cluster(
      {.prefill = 0, .decode = 0, .worker_flags = {"--metrics-port=" + std::to_string(port)}});
  EXPECT_TRUE(Ask(cluster.client(), TextRequest("It was", v1::ROUTE_UNIFIED, 4)).status.ok());
  EXPECT_EQ(HttpGet(port, "/livez").status, 200);
  HttpReply ready;  // its watchdog looks a moment after the start
  do {
    ready = HttpGet(port, "/readyz");
  } while (ready.body.find("\"step\"") == std::string::npos);
  EXPECT_EQ(ready.status, 200) << ready.body;
  EXPECT_EQ(HttpGet(port, "/healthz").status, 200);
  for (const char* check : {"engine", "watchdog", "step", "weights", "draining", "connections"}) {
    EXPECT_THAT(ready.body, HasSubstr("{\"name\":\"" + std::string(check) + "\",\"ok\":true"));
  }
  const std::string page = HttpGet(port, "/metrics").body;
  for (const char* line :
       {"tandem_worker_ready{worker=\"unified-0\",role=\"unified\"} 1\n",
        "tandem_worker_output_tokens_total{worker=\"unified-0\",role=\"unified\"} 4\n",
        "vllm:generation_tokens_total{model_name=\"sample\"} 4\n",
        "vllm:cache_config_info{model_name=\"sample\",block_size=\"16\","}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(StandardServicesTest, MetricsAreServedOverHttp) {
  const uint16_t port = FreePort();
  TestCluster cluster({.unified = 0, .router_flags = {"--metrics-port=" + std::to_string(port)}});
  EXPECT_TRUE(Ask(cluster.client(), TextRequest("It was", v1::ROUTE_DISAGGREGATED, 4)).status.ok());
  cluster.WaitFor("the hand-off and its peer's name", [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus& prefill = *FindWorker(status, "prefill-0");
    return prefill.load().handoffs().sent() == 1 && prefill.load().links_size() > 0 &&
           prefill.load().links(0).peer() == "decode-0";
  });
  EXPECT_EQ(HttpGet(port, "/healthz").status, 200);
  const std::string page = HttpGet(port, "/metrics").body;
  for (const char* line :
       {"tandem_requests_total 1\n",
        "tandem_handoffs_total{worker=\"prefill-0\",role=\"prefill\",what=\"sent\"} 1\n",
        "tandem_link_in_use{worker=\"prefill-0\",peer=\"decode-0\",transport=\"tcp\"} 0\n",
        "tandem_link_in_use{worker=\"prefill-0\",peer=\"decode-0\",transport=\"ipc\"} 1\n",
        "tandem_request_ends_total{code=\"OK\"} 1\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"sample\"} 1\n",
        "vllm:inter_token_latency_seconds_count{model_name=\"sample\"} 3\n",
        "vllm:generation_tokens_total{model_name=\"sample\"} 4\n",
        "vllm:request_success_total{model_name=\"sample\",finished_reason=\"length\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(StandardServicesTest, TheHttpPortSaysWhetherRequestsAreServed) {
  const uint16_t port = FreePort();
  TestCluster cluster(
      {.prefill = 0, .decode = 0, .router_flags = {"--http-port=" + std::to_string(port)}});
  HttpPeer http(port);
  for (const char* path :
       {"/health", "/ping", "/healthz", "/livez", "/readyz", "/version", "/metrics"}) {
    EXPECT_EQ(http.Get(path).status, 200) << path;
  }
  EXPECT_EQ(http.Get("/v1/elsewhere").status, 404);
  EXPECT_THAT(http.Get("/metrics").body, HasSubstr("\ntandem_http_connections 1\n"));
  cluster.Kill("unified-0");
  cluster.WaitFor("no route", [](const v1::GetStatusResponse& status) { return !status.ready(); });
  EXPECT_EQ(http.Get("/health").status, 503);
  EXPECT_EQ(http.Get("/readyz").status, 503);
  EXPECT_EQ(http.Get("/livez").status, 200);
  EXPECT_EQ(cluster.Terminate("router"), 0) << "an idle HTTP connection does not hold it";
  EXPECT_TRUE(http.AwaitEnd());
}

}  // namespace
}  // namespace tandem::standard_services_test
