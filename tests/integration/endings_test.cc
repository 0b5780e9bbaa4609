// How requests end when the client, the time or the memory gives out.

#include <signal.h>

#include <future>
#include <thread>

#include "base/retry_after.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "tandem/v1/inference.grpc.pb.h"
#include "tests/support/test_cluster.h"

namespace tandem::endings_test {
namespace {

using ::testing::HasSubstr;

constexpr char kPrompt[] = "It was a fine morning, and the ladies";
// Long enough to be interrupted.
constexpr int32_t kLong = 1900;

TEST(EndingsTest, ClientGoneMidStreamFreesItsBlocks) {
  TestCluster cluster;
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
    v1::GenerateRequest request = TextRequest(kPrompt, route, kLong);
    request.set_n(3);
    int events = 0;
    const absl::Status status =
        cluster.client().Generate(request, Client::kNoTimeout,
                                  [&events](const v1::GenerateResponse&) { return ++events < 10; });
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    cluster.WaitUntilIdle();
  }
}

TEST(EndingsTest, DeadlineEndsTheWorkAtBothWorkers) {
  TestCluster cluster;
  for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
    v1::GenerateRequest request = TextRequest(kPrompt, route, kLong);
    request.set_n(4);
    const Outcome outcome = Ask(cluster.client(), request, std::chrono::milliseconds(150));
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded) << outcome.status;
    cluster.WaitUntilIdle();
  }
}

TEST(EndingsTest, RequestsThatEndAtAnyMomentLeaveNothingBehind) {
  TestCluster cluster;
  std::vector<std::future<Outcome>> outcomes;
  for (int i = 0; i < 90; ++i) {
    const auto route = static_cast<v1::Route>(i % 3);
    const std::chrono::milliseconds timeout(1 + i / 3);  // ends at every point of its life
    outcomes.push_back(std::async(std::launch::async, [&cluster, route, timeout] {
      return Ask(cluster.client(), TextRequest(kPrompt, route, 20), timeout);
    }));
  }
  for (auto& future : outcomes) {
    const Outcome outcome = future.get();
    EXPECT_TRUE(outcome.status.ok() || absl::IsDeadlineExceeded(outcome.status)) << outcome.status;
  }
  cluster.WaitUntilIdle();
  EXPECT_TRUE(Ask(cluster.client(), TextRequest(kPrompt, v1::ROUTE_DISAGGREGATED, 4)).status.ok());
}

// The client sets none, so that nobody but the daemon can end its calls.
TEST(EndingsTest, TheRoutersOwnDeadlineHoldsForClientsWithoutOne) {
  TestCluster cluster({.router_flags = {"--max-request-seconds=1"}});
  const struct {
    std::string worker;  // stops when so many events have come, and so keeps the request ...
    int at;
    v1::Route route;
  } cases[] = {{"unified-0", 0, v1::ROUTE_UNIFIED},
               {"decode-0", 0, v1::ROUTE_DISAGGREGATED},    // ... reserving
               {"prefill-0", 0, v1::ROUTE_DISAGGREGATED},   // ... prefilling
               {"decode-0", 20, v1::ROUTE_DISAGGREGATED}};  // ... decoding
  for (const auto& [worker, at, route] : cases) {
    SCOPED_TRACE(worker + " after " + std::to_string(at));
    if (at == 0) cluster.Signal(worker, SIGSTOP);
    int events = 0;
    const absl::Status status =
        cluster.client().Generate(TextRequest(kPrompt, route, kLong), Client::kNoTimeout,
                                  [&, &worker = worker, at = at](const v1::GenerateResponse&) {
                                    if (++events == at) cluster.Signal(worker, SIGSTOP);
                                    return true;
                                  });
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(worker));
    EXPECT_EQ(events > 0, at > 0);
    cluster.Signal(worker, SIGCONT);
    cluster.WaitUntilIdle();
  }
}

TEST(EndingsTest, APoolThatIsFullIsWaitedForInAQueueThatIsSeen) {
  TestCluster cluster({.unified = 0, .worker_flags = {"--kv-tokens=128"}});
  // A prompt for most of the pool, and a reservation that stays, since nobody prefills for it.
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_DISAGGREGATED, 20);
  for (int32_t id = 0; id < 90; ++id) request.mutable_token_ids()->add_ids(100 + id);
  cluster.Signal("prefill-0", SIGSTOP);
  auto holder = std::async(std::launch::async,
                           [&cluster, request] { return Ask(cluster.client(), request); });
  cluster.WaitFor("a reservation", [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* decode = FindWorker(status, "decode-0");
    return decode != nullptr && BlocksInUse(*decode) > 0;
  });
  auto waiting = std::async(std::launch::async,
                            [&cluster, request] { return Ask(cluster.client(), request); });
  cluster.WaitFor("a reservation that waits", [](const v1::GetStatusResponse& status) {
    const v1::WorkerStatus* decode = FindWorker(status, "decode-0");
    return decode != nullptr && decode->load().handoffs().waiting_reservations() > 0;
  });
  cluster.Signal("prefill-0", SIGCONT);
  const Outcome held = holder.get();
  EXPECT_TRUE(held.status.ok()) << held.status;
  const Outcome waited = waiting.get();
  ASSERT_TRUE(waited.status.ok()) << waited.status;
  EXPECT_GT(waited.generation.choices[0].finish.stages().admission_ms(), 0);
  cluster.WaitUntilIdle();
  request.set_max_tokens(2000);
  const Outcome too_long = Ask(cluster.client(), request);
  EXPECT_EQ(too_long.status.code(), absl::StatusCode::kInvalidArgument) << too_long.status;
}

TEST(EndingsTest, ASlowReaderIsEndedAndItsBlocksAreFree) {
  TestCluster cluster({.router_flags = {"--stream-buffer-bytes=4KiB"}});
  v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, kLong);
  request.mutable_sampling()->set_logprobs(20);
  // A client that lets the network hold no more than HTTP/2's first window of 64 KiB.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::Inference::NewStub(
      grpc::CreateCustomChannel(cluster.address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse event;
  ASSERT_TRUE(reader->Read(&event));
  cluster.WaitUntilIdle();  // does not read until its request was given up
  while (reader->Read(&event)) EXPECT_TRUE(event.has_chunk());
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("slowly"));
}

// Asks for a whole answer of many bytes, which is queued at once, and reads one event of it.
class UnreadAnswer {
 public:
  explicit UnreadAnswer(const TestCluster& cluster) {
    v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, 100);
    request.set_n(15);
    request.set_best_of(16);
    request.mutable_sampling()->set_logprobs(20);
    request.set_ignore_eos(true);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    stub_ = v1::Inference::NewStub(grpc::CreateCustomChannel(
        cluster.address(), grpc::InsecureChannelCredentials(), arguments));
    reader_ = stub_->Generate(&context_, request);
    EXPECT_TRUE(reader_->Read(&event_));
  }
  grpc::Status ReadOn() {
    while (reader_->Read(&event_)) continue;
    return reader_->Finish();
  }

 private:
  std::unique_ptr<v1::Inference::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  v1::GenerateResponse event_;
};

TEST(EndingsTest, AWholeAnswerThatExceedsWhatMayBeUnreadIsEnded) {
  TestCluster cluster({.router_flags = {"--answer-buffer-bytes=64KiB"}});
  UnreadAnswer answer(cluster);
  cluster.WaitFor("an answer that is ended", [](const v1::GetStatusResponse& status) {
    return status.answers().refused() == 1 && status.answers().bytes() == 0;
  });
  const grpc::Status status = answer.ReadOn();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("--answer-buffer-bytes"));
}

TEST(EndingsTest, AnAnswerThatIsNotReadInTimeIsDroppedThoughItsRequestIsOver) {
  TestCluster cluster({.router_flags = {"--max-request-seconds=5"}});
  UnreadAnswer answer(cluster);
  cluster.WaitFor("an unread answer", [](const v1::GetStatusResponse& status) {
    return status.answers().bytes() > 0 && status.requests_in_flight() == 0;
  });
  cluster.WaitFor("the answer to be dropped", [](const v1::GetStatusResponse& status) {
    return status.answers().bytes() == 0 && status.answers().unread() == 1;
  });
  EXPECT_FALSE(answer.ReadOn().ok());
}

TEST(EndingsTest, ARequestThatIsTooLongIsTheClientsFault) {
  TestCluster cluster({.router_flags = {"--max-message-bytes=64KiB"}});
  const Outcome too_long =
      Ask(cluster.client(), TextRequest(std::string(100 << 10, 'a'), v1::ROUTE_UNIFIED, 4));
  EXPECT_EQ(too_long.status.code(), absl::StatusCode::kInvalidArgument) << too_long.status;
  EXPECT_THAT(std::string(too_long.status.message()), HasSubstr("--max-message-bytes"));
}

TEST(EndingsTest, TooManyInFlightAreRefused) {
  TestCluster cluster({.router_flags = {"--max-in-flight=2"}});
  v1::GenerateRequest request = TextRequest(kPrompt, v1::ROUTE_UNIFIED, 4);
  request.set_n(3);
  const Outcome outcome = Ask(cluster.client(), request);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  EXPECT_TRUE(RetryAfter(outcome.status).has_value()) << "when to ask again";
  request.set_n(2);
  EXPECT_TRUE(Ask(cluster.client(), request).status.ok());
}

TEST(EndingsTest, WorkersDrainBeforeTheyEnd) {
  // Else the last request would wait for a worker in the place of the one that left.
  TestCluster cluster({.prefill = 0, .decode = 0, .router_flags = {"--max-resumes=0"}});
  bool told = false;
  Outcome outcome;
  outcome.status =
      cluster.client().Generate(TextRequest(kPrompt, v1::ROUTE_UNIFIED, 1500), Client::kNoTimeout,
                                [&](const v1::GenerateResponse& event) {
                                  if (!told) cluster.Signal("unified-0", SIGTERM);
                                  told = true;
                                  outcome.generation.Add(event);
                                  return true;
                                });
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.generation.choices[0].token_ids.size(), 1500u);
  cluster.WaitFor("the worker has left",
                  [](const v1::GetStatusResponse& s) { return s.workers_size() == 0; });
  const Outcome refused = Ask(cluster.client(), TextRequest(kPrompt, v1::ROUTE_AUTO, 4));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable) << refused.status;
}

}  // namespace
}  // namespace tandem::endings_test
