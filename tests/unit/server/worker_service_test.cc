// The calls of a router, with a real server and a real decode engine.

#include "server/services/worker_service.h"

#include <future>
#include <memory>
#include <string>
#include <thread>

#include "fmt/format.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "server/services/worker_messages.h"
#include "tests/support/test_engine.h"

namespace tandem::worker_service_test {
namespace {

constexpr uint64_t kRequest = 77;

// A decode worker whose pool has room for one request.
class WorkerServiceTest : public testing::Test {
 protected:
  WorkerServiceTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::Worker::NewStub(
        grpc::CreateChannel(fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials()));
  }

  v1::ReserveRequest Asking(uint64_t request_id) {
    v1::ReserveRequest request;
    request.set_request_id(request_id);
    for (int32_t token = 1; token <= 20; ++token) request.add_prompt(token);
    request.set_max_tokens(8);
    request.set_width(1);
    *request.mutable_layout() = ToProto(engine_.layout());
    request.set_model_fingerprint(engine_->options().model_fingerprint);
    request.set_epoch(engine_->options().epoch);
    return request;
  }
  grpc::StatusCode Reserve(const v1::ReserveRequest& request) {
    grpc::ClientContext context;
    v1::ReserveResponse response;
    return stub_->Reserve(&context, request, &response).error_code();
  }
  grpc::Status Release(uint64_t request_id, uint64_t epoch) {
    grpc::ClientContext context;
    v1::ReleaseRequest request;
    request.set_request_id(request_id);
    request.set_epoch(epoch);
    v1::ReleaseResponse response;
    return stub_->Release(&context, request, &response);
  }
  grpc::StatusCode ReleaseOf(uint64_t request_id, uint64_t epoch) {
    return Release(request_id, epoch).error_code();
  }
  uint64_t epoch() { return engine_->options().epoch; }
  EngineStats Stats() {
    engine_.Settle();
    return engine_->stats();
  }

  TestEngine engine_{{.role = Role::kDecode, .num_blocks = 4, .block_tokens = 8}};
  WorkerService service_{engine_.engine(), "tcp:127.0.0.1:1", [] {}};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Worker::Stub> stub_;
};

// The router cancelled the call when the answer was on its way: it knows the request, but no
// reservation.
TEST_F(WorkerServiceTest, AReservationWhoseAnswerWasLostIsReleasedByItsRequest) {
  ASSERT_EQ(Reserve(Asking(kRequest)), grpc::StatusCode::OK);
  EXPECT_EQ(Stats().reservations, 1);
  EXPECT_EQ(ReleaseOf(kRequest + 1, epoch()), grpc::StatusCode::OK);
  EXPECT_EQ(Stats().reservations, 1) << "of another request";
  EXPECT_EQ(ReleaseOf(kRequest, epoch() + 1), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Stats().reservations, 1) << "at another process of the worker's name";
  EXPECT_EQ(ReleaseOf(kRequest, epoch()), grpc::StatusCode::OK);
  const EngineStats stats = Stats();
  EXPECT_EQ(stats.reservations, 0);
  EXPECT_EQ(stats.handoff_counts.lapsed, 0u);
  EXPECT_TRUE(engine_.AtRest());
}

// Whoever knows the epoch may give this worker orders.
TEST_F(WorkerServiceTest, NoErrorNamesTheEpoch) {
  const auto expect_unnamed = [this](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
    for (const std::string& name : {fmt::format("{}", epoch()), fmt::format("{:x}", epoch())}) {
      EXPECT_EQ(status.error_message().find(name), std::string::npos) << status.error_message();
    }
  };
  expect_unnamed(Release(kRequest, epoch() + 1));
  v1::ReserveRequest reserve = Asking(kRequest);
  reserve.set_epoch(epoch() + 1);
  grpc::ClientContext reserving;
  v1::ReserveResponse response;
  expect_unnamed(stub_->Reserve(&reserving, reserve, &response));
  grpc::ClientContext decoding;
  v1::DecodeRequest decode;
  decode.set_epoch(epoch() + 1);
  expect_unnamed(stub_->Decode(&decoding, decode)->Finish());
}

TEST_F(WorkerServiceTest, AReservationThatWaitsForRoomEndsWhenItsRequestIsReleased) {
  ASSERT_EQ(Reserve(Asking(kRequest)), grpc::StatusCode::OK);
  grpc::ClientContext context;
  v1::ReserveResponse response;
  std::promise<grpc::StatusCode> answer;
  const v1::ReserveRequest request = Asking(kRequest + 1);
  stub_->async()->Reserve(&context, &request, &response, [&answer](const grpc::Status& status) {
    answer.set_value(status.error_code());
  });
  while (Stats().waiting_reservations == 0) std::this_thread::yield();
  EXPECT_EQ(ReleaseOf(kRequest + 1, epoch()), grpc::StatusCode::OK);
  EXPECT_EQ(answer.get_future().get(), grpc::StatusCode::CANCELLED);
  const EngineStats stats = Stats();
  EXPECT_EQ(stats.waiting_reservations, 0);
  EXPECT_EQ(stats.reservations, 1) << "the other request keeps what it has";
  EXPECT_EQ(ReleaseOf(kRequest, epoch()), grpc::StatusCode::OK);
  Stats();
  EXPECT_TRUE(engine_.AtRest());
}

}  // namespace
}  // namespace tandem::worker_service_test
