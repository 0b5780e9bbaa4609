// The client that calls workers, with a real server in the place of the worker.

#include "router/client/grpc_worker_client.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "fmt/format.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "router/event_loop.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem::grpc_worker_client_test {
namespace {

// Answers Reserve when the test says so, whether or not the caller still waits.
class SlowReserve final : public v1::Worker::Service {
 public:
  grpc::Status Reserve(grpc::ServerContext* context, const v1::ReserveRequest*,
                       v1::ReserveResponse* response) override {
    asked.Notify();
    answer.WaitForNotification();
    was_cancelled.set_value(context->IsCancelled());
    response->mutable_target()->set_reservation_id(7);
    return grpc::Status::OK;
  }
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override {
    ++num_released;
    released.set_value(*request);
    return grpc::Status::OK;
  }

  absl::Notification asked;
  absl::Notification answer;
  std::promise<bool> was_cancelled;
  std::atomic<int> num_released = 0;
  std::promise<v1::ReleaseRequest> released;
};

class GrpcWorkerClientTest : public testing::Test {
 protected:
  GrpcWorkerClientTest() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    worker_ = {.id = {"d0", 1}, .address = fmt::format("127.0.0.1:{}", port)};
    thread_ = std::thread([this] { loop_->Run(); });
  }
  ~GrpcWorkerClientTest() override {
    loop_->Stop();
    thread_.join();
  }

  // Runs it on the loop's thread and waits.
  template <typename Function>
  void OnLoop(const Function& function) {
    absl::Notification done;
    loop_->Post([&] {
      function();
      done.Notify();
    });
    done.WaitForNotification();
  }
  Health Ping() {
    std::promise<Health> answer;
    std::unique_ptr<WorkerCall> call;
    OnLoop([&] {
      call = client_.Ping(worker_, [&answer](Health health) { answer.set_value(health); });
    });
    const Health health = answer.get_future().get();
    OnLoop([&call] { call.reset(); });
    return health;
  }

  SlowReserve service_;
  std::unique_ptr<grpc::Server> server_;
  WorkerEndpoint worker_;
  const SteadyClock clock_;
  const std::shared_ptr<EventLoop> loop_ = std::make_shared<EventLoop>(clock_, 64);
  GrpcWorkerClient client_{loop_};
  std::thread thread_;
};

TEST_F(GrpcWorkerClientTest, APingReturnsWhetherTheWorkerServes) {
  EXPECT_EQ(Ping(), Health::kServing);
  server_->GetHealthCheckService()->SetServingStatus(false);
  EXPECT_EQ(Ping(), Health::kNotServing);
}

// A cancelled call could lose the answer, and the blocks would be held until their lease lapses.
TEST_F(GrpcWorkerClientTest, AReservationGrantedAfterItsRequestEndedIsReleased) {
  std::unique_ptr<WorkerCall> call;
  v1::ReserveRequest request;
  request.set_at_once(true);
  OnLoop([&] {
    call = client_.Reserve(worker_, request, {}, [](const CallEnd&, const v1::ReserveResponse&) {
      ADD_FAILURE() << "the call was dropped";
    });
  });
  service_.asked.WaitForNotification();
  OnLoop([&call] { call.reset(); });
  service_.answer.Notify();
  EXPECT_FALSE(service_.was_cancelled.get_future().get());
  EXPECT_EQ(service_.released.get_future().get().reservation_id(), 7u);
}

// It may be given room at the moment in which the call is cancelled, and the answer is lost.
TEST_F(GrpcWorkerClientTest, AReservationThatWaitsIsCancelledAndReleasedByItsRequest) {
  std::unique_ptr<WorkerCall> call;
  v1::ReserveRequest request;
  request.set_request_id(5);
  request.set_epoch(1);
  OnLoop([&] {
    call = client_.Reserve(worker_, request, {}, [](const CallEnd&, const v1::ReserveResponse&) {
      ADD_FAILURE() << "the call was dropped";
    });
  });
  service_.asked.WaitForNotification();
  OnLoop([&call] { call.reset(); });
  const v1::ReleaseRequest release = service_.released.get_future().get();
  EXPECT_EQ(release.request_id(), 5u);
  EXPECT_EQ(release.epoch(), 1u);
  EXPECT_EQ(release.reservation_id(), 0u);
  service_.answer.Notify();
  EXPECT_TRUE(service_.was_cancelled.get_future().get());
}

TEST_F(GrpcWorkerClientTest, AReservationThatWasAnsweredIsNotReleased) {
  std::unique_ptr<WorkerCall> call;
  std::promise<uint64_t> reserved;
  OnLoop([&] {
    call = client_.Reserve(worker_, {}, {},
                           [&reserved](const CallEnd&, const v1::ReserveResponse& response) {
                             reserved.set_value(response.target().reservation_id());
                           });
  });
  service_.answer.Notify();
  EXPECT_EQ(reserved.get_future().get(), 7u);
  OnLoop([&call] { call.reset(); });
  // A call that came before the ping is taken by now, and Shutdown waits for its end.
  EXPECT_EQ(Ping(), Health::kServing);
  server_->Shutdown();
  EXPECT_EQ(service_.num_released, 0);
}

}  // namespace
}  // namespace tandem::grpc_worker_client_test
