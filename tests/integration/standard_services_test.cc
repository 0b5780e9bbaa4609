// The standard services: health and reflection that every gRPC tool asks for, metrics over HTTP.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/test_cluster.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
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

TEST(StandardServicesTest, MetricsAreServedOverHttp) {
  uint16_t port = 0;
  {
    const auto free_port = Listen("127.0.0.1", 0);
    ASSERT_TRUE(free_port.ok()) << free_port.status();
    port = LocalPort(*free_port);
  }
  TestCluster cluster({.unified = 0, .router_flags = {"--metrics-port=" + std::to_string(port)}});
  EXPECT_TRUE(Ask(cluster.client(), TextRequest("It was", v1::ROUTE_DISAGGREGATED, 4)).status.ok());
  cluster.WaitFor("the hand-off and its peer's name", [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus& prefill = *FindWorker(status, "prefill-0");
    return prefill.load().handoffs().sent() == 1 && prefill.load().links_size() > 0 &&
           prefill.load().links(0).peer() == "decode-0";
  });
  httplib::Client http("127.0.0.1", port);
  EXPECT_EQ(http.Get("/healthz")->status, 200);
  const std::string page = http.Get("/metrics")->body;
  for (const char* line :
       {"tandem_requests_total 1\n",
        "tandem_handoffs_total{worker=\"prefill-0\",role=\"prefill\",what=\"sent\"} 1\n",
        "tandem_link_in_use{worker=\"prefill-0\",peer=\"decode-0\",transport=\"tcp\"} 0\n",
        "tandem_link_in_use{worker=\"prefill-0\",peer=\"decode-0\",transport=\"ipc\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

}  // namespace
}  // namespace tandem
