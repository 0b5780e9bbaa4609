#include "tests/support/call_by_bytes.h"

#include <optional>
#include <vector>

#include "absl/synchronization/notification.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "security/grpc/channel_tls.h"
#include "security/tls_source.h"

namespace tandem {

std::string CallByBytes(const std::string& address, const std::string& method,
                        const std::string& bytes) {
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

grpc::Status StatusOfCall(const std::string& address, const TlsFiles& files,
                          const std::string& method, const std::string& bytes) {
  std::optional<TlsMaterial> material;
  if (files != TlsFiles()) material = *LoadTlsMaterial(files);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::GenericStub stub(grpc::CreateCustomChannel(
      address,
      NewChannelCredentials(material ? &*material : nullptr,
                            {.roles = {IdentityRole::kRouter, IdentityRole::kWorker}}),
      arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const grpc::Slice sent(bytes);
  const grpc::ByteBuffer request(&sent, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, method, {}, &request, &response, [&](const grpc::Status& end) {
    status = end;
    done.Notify();
  });
  done.WaitForNotification();
  return status;
}

}  // namespace tandem
