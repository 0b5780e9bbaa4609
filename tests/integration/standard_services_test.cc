// The standard health and reflection services that every gRPC tool asks for.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// One message there and one back, by bytes: their .proto files are not ours.
std::string Call(const std::string& address, const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  const grpc::Slice sent(bytes);
  grpc::ByteBuffer received;
  grpc::Status status;
  call->StartCall(nullptr);
  EXPECT_TRUE(step());
  call->Write(grpc::ByteBuffer(&sent, 1), nullptr);
  EXPECT_TRUE(step());
  call->WritesDone(nullptr);
  EXPECT_TRUE(step());
  call->Read(&received, nullptr);
  EXPECT_TRUE(step());
  call->Finish(&status, nullptr);
  EXPECT_TRUE(step());
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::vector<grpc::Slice> slices;
  received.Dump(&slices).ok();
  std::string answer;
  for (const grpc::Slice& slice : slices) {
    answer.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return answer;
}

TEST(StandardServicesTest, HealthSaysServingAndReflectionListsOurServices) {
  TestCluster cluster({.prefill = 0, .decode = 0});
  constexpr char kServing[] = "\x08\x01";          // HealthCheckResponse.status = SERVING
  const std::string list_services("\x3a\x00", 2);  // ServerReflectionRequest.list_services
  EXPECT_EQ(Call(cluster.address(), "/grpc.health.v1.Health/Check", ""), kServing);
  const std::string services =
      Call(cluster.address(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
           list_services);
  EXPECT_THAT(services, HasSubstr("tandem.v1.Inference"));
  EXPECT_THAT(services, HasSubstr("tandem.v1.Cluster"));
}

}  // namespace
}  // namespace tandem
