// The standard health and reflection services that every gRPC tool asks for.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/test_cluster.h"

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

}  // namespace
}  // namespace tandem
