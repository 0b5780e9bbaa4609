#include "router/router.h"

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_workers.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A client's end: what it read and how it ended.
class RecordingStream final : public ResponseStream {
 public:
  bool Send(const v1::GenerateResponse& response) override {
    EXPECT_FALSE(end.has_value()) << "an event after the end";
    if (capacity == 0) return false;
    --capacity;
    if (response.has_chunk()) {
      for (const int32_t id : response.chunk().token_ids()) tokens.push_back(id);
    }
    if (response.has_finish()) finishes.push_back(response.finish());
    if (response.has_summary()) summary = response.summary();
    return true;
  }
  void End(const absl::Status& status) override {
    EXPECT_FALSE(end.has_value()) << "a second end";
    end = status;
  }

  int capacity = 1000;
  std::vector<int32_t> tokens;
  std::vector<v1::ChoiceFinish> finishes;
  std::optional<v1::Summary> summary;
  std::optional<absl::Status> end;
};

constexpr auto kNetwork = CallEnd::Source::kNetwork;
constexpr auto kWorker = CallEnd::Source::kWorker;

// The test is every worker and owns the time.
class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    Join("p0", v1::WORKER_ROLE_PREFILL);
    Join("d0", v1::WORKER_ROLE_DECODE);
    router_.Start();
    loop_.RunReady();
  }

  static RouterOptions Options() {
    RouterOptions options;
    options.limits.model = "sample";
    options.limits.vocab_size = 1000;
    options.limits.max_context_tokens = 100;
    options.limits.eos_token_ids = {999};
    options.max_in_flight = 4;
    options.random_seed = 1;
    return options;
  }

  void Join(const std::string& name, v1::WorkerRole role) {
    v1::RegisterRequest request;
    request.set_name(name);
    request.set_incarnation(1);
    request.set_role(role);
    request.set_address(name + ":1");
    request.set_model("sample");
    request.set_max_context_tokens(100);
    ASSERT_TRUE(cluster_.Register(request).ok());
  }

  static v1::GenerateRequest Ask(v1::Route route = v1::ROUTE_DISAGGREGATED) {
    v1::GenerateRequest request;
    for (const int id : {1, 2, 3}) request.mutable_token_ids()->add_ids(id);
    request.set_max_tokens(4);
    request.set_route(route);
    return request;
  }

  RequestId Submit(const v1::GenerateRequest& request, TimePoint deadline = kNoDeadline) {
    const auto id = router_.Submit(request, deadline, stream_);
    EXPECT_TRUE(id.ok()) << id.status();
    loop_.RunReady();
    return id.ok() ? *id : RequestId();
  }

  // The worker of this call says these tokens.
  void Say(const std::string& call, const std::vector<int32_t>& ids) {
    const auto stream = workers_.Find(call);
    ASSERT_NE(stream, nullptr) << call;
    v1::WorkerEvent event;
    for (const int32_t id : ids) event.mutable_tokens()->add_token_ids(id);
    event.mutable_tokens()->mutable_stages()->set_prefill_us(1000);
    stream->handlers.on_event(event);
    loop_.RunReady();
  }
  void Finish(const std::string& call, v1::WorkerFinish::Reason reason) {
    const auto stream = workers_.Find(call);
    ASSERT_NE(stream, nullptr) << call;
    v1::WorkerEvent event;
    event.mutable_finish()->set_reason(reason);
    event.mutable_finish()->mutable_kv()->set_raw_bytes(77);
    stream->handlers.on_event(event);
    End(call, absl::OkStatus(), kWorker);
  }
  void End(const std::string& call, const absl::Status& status, CallEnd::Source source) {
    const auto stream = workers_.Find(call);
    ASSERT_NE(stream, nullptr) << call;
    stream->handlers.on_end({status, source});
    loop_.RunReady();
  }
  void Reserved(uint64_t id = 5) {
    v1::ReserveResponse response;
    response.mutable_target()->set_reservation_id(id);
    workers_.reservations.back()->done({absl::OkStatus(), kWorker}, response);
    loop_.RunReady();
  }
  void RefuseReservation(const absl::Status& status, CallEnd::Source source = kWorker) {
    workers_.reservations.back()->done({status, source}, {});
    loop_.RunReady();
  }

  void ExpectNothingLeft() {
    EXPECT_THAT(workers_.Open(), IsEmpty());
    EXPECT_EQ(router_.Status().requests_in_flight(), 0);
    for (const WorkerView& worker : cluster_.View()->workers) {
      EXPECT_EQ(worker.charged.sequences, 0) << worker.id.name;
      EXPECT_EQ(worker.charged.prompt_tokens, 0) << worker.id.name;
    }
  }
  void ExpectFailed(absl::StatusCode code, const std::string& says) {
    ASSERT_TRUE(stream_.end.has_value());
    EXPECT_EQ(stream_.end->code(), code) << *stream_.end;
    EXPECT_THAT(std::string(stream_.end->message()), HasSubstr(says));
    ExpectNothingLeft();
  }

  FakeClock clock_;
  EventLoop loop_{clock_, 16};
  Cluster cluster_{{.model = "sample", .lease = seconds(5), .heartbeat = seconds(1)}, clock_};
  std::unique_ptr<RoutingPolicy> policy_ = NewLeastLoadedPolicy();
  FakeWorkers workers_;
  RecordingStream stream_;
  Router router_{Options(),
                 {.tokenizer = nullptr,
                  .cluster = cluster_,
                  .policy = *policy_,
                  .workers = workers_,
                  .loop = loop_,
                  .clock = clock_}};
};

TEST_F(RouterTest, DisaggregatedRequestGoesThroughBothWorkers) {
  Submit(Ask());
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  clock_.Advance(milliseconds(2));
  Reserved();
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  clock_.Advance(milliseconds(8));
  Say("prefill p0", {10});
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("prefill p0", "decode d0"));
  EXPECT_EQ(workers_.first_token, 10);
  EXPECT_THAT(stream_.tokens, ElementsAre(10)) << "the first token is streamed at once";
  Finish("prefill p0", v1::WorkerFinish::REASON_HANDED_OFF);
  clock_.Advance(milliseconds(30));
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", v1::WorkerFinish::REASON_LENGTH);

  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12, 13));
  ASSERT_EQ(stream_.finishes.size(), 1u);
  const v1::ChoiceFinish& finish = stream_.finishes[0];
  EXPECT_EQ(finish.reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(finish.route(), v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(finish.kv_bytes().raw(), 77u);
  EXPECT_DOUBLE_EQ(finish.stages().ttft_ms(), 10);
  EXPECT_DOUBLE_EQ(finish.stages().reserve_ms(), 2);
  EXPECT_DOUBLE_EQ(finish.tpot_ms(), 10);
  EXPECT_EQ(stream_.summary->usage().prompt_tokens(), 3);
  EXPECT_EQ(stream_.summary->usage().completion_tokens(), 4);
  EXPECT_THAT(workers_.released, IsEmpty());
  ExpectNothingLeft();
}

TEST_F(RouterTest, FirstTokenThatEndsTheRequestNeedsNoDecode) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {999});  // EOS
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  Finish("prefill p0", v1::WorkerFinish::REASON_STOP);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.finishes[0].reason(), v1::FINISH_REASON_STOP);
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ExpectNothingLeft();
}

TEST_F(RouterTest, DecodeMayFinishBeforeThePrefillWorkersReport) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", v1::WorkerFinish::REASON_LENGTH);
  EXPECT_FALSE(stream_.end.has_value());
  Finish("prefill p0", v1::WorkerFinish::REASON_HANDED_OFF);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.finishes[0].kv_bytes().raw(), 77u);
  ExpectNothingLeft();
}

TEST_F(RouterTest, AReportThatNeverComesDoesNotKeepTheClientWaiting) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", v1::WorkerFinish::REASON_LENGTH);
  clock_.Advance(seconds(2));
  loop_.RunReady();
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  ExpectNothingLeft();
}

TEST_F(RouterTest, CancelEndsBothWorkersWorkAndGivesTheReservationBack) {
  const RequestId id = Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  router_.Cancel(id, Cancelled("the client went away"));
  loop_.RunReady();
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ExpectFailed(absl::StatusCode::kCancelled, "client");
}

TEST_F(RouterTest, CancelWhileReserving) {
  const RequestId id = Submit(Ask());
  router_.Cancel(id, Cancelled("the client went away"));
  loop_.RunReady();
  ExpectFailed(absl::StatusCode::kCancelled, "client");
}

TEST_F(RouterTest, NoRoomIsAnsweredWhenThereIsNoOtherDecodeWorker) {
  Submit(Ask());
  RefuseReservation(ResourceExhausted("no 3 blocks free"));
  ExpectFailed(absl::StatusCode::kResourceExhausted, "decode worker d0: no 3 blocks free");
}

TEST_F(RouterTest, NoRoomTriesTheNextDecodeWorkerAndThenUnified) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  cluster_.Charge({"u0", 1}, {.sequences = 9});  // busy, so that auto disaggregates
  Submit(Ask(v1::ROUTE_AUTO));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  Say("generate u0", {1, 2, 3, 4});
  Finish("generate u0", v1::WorkerFinish::REASON_LENGTH);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.finishes[0].route(), v1::ROUTE_UNIFIED);
  cluster_.Discharge({"u0", 1}, {.sequences = 9});
  ExpectNothingLeft();
}

TEST_F(RouterTest, PrefillWorkerLostBeforeAnyTokenIsRetriedElsewhereOnce) {
  Join("p1", v1::WORKER_ROLE_PREFILL);
  Submit(Ask());
  Reserved(5);
  End("prefill p0", Unavailable("Socket closed"), kNetwork);
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  Reserved(6);
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p1"));
  End("prefill p1", Unavailable("Socket closed"), kNetwork);
  ExpectFailed(absl::StatusCode::kUnavailable, "prefill worker p1 (p1:1) was lost: Socket closed");
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_PREFILL));
}

TEST_F(RouterTest, PrefillWorkerLostAfterTheFirstTokenEndsTheRequest) {
  Join("p1", v1::WORKER_ROLE_PREFILL);
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  End("prefill p0", Internal("RST_STREAM"), kNetwork);
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ExpectFailed(absl::StatusCode::kUnavailable, "prefill worker p0");
}

TEST_F(RouterTest, PrefillWorkerLostOnceTheKvHasArrivedDoesNotMatter) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11});
  End("prefill p0", Unavailable("Socket closed"), kNetwork);
  Say("decode d0", {12, 13});
  Finish("decode d0", v1::WorkerFinish::REASON_LENGTH);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12, 13));
  ExpectNothingLeft();
}

TEST_F(RouterTest, DecodeWorkerLostEndsTheRequestByName) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11});
  End("decode d0", Unavailable("Connection reset by peer"), kNetwork);
  ExpectFailed(absl::StatusCode::kUnavailable, "decode worker d0 (d0:1) was lost");
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_DECODE));
}

TEST_F(RouterTest, AnAnswerOfTheWorkerItselfRaisesNoSuspicion) {
  Submit(Ask(v1::ROUTE_DISAGGREGATED));
  Reserved();
  Say("prefill p0", {10});
  End("decode d0", NotFound("reservation 5 has lapsed"), kWorker);
  ExpectFailed(absl::StatusCode::kUnavailable, "decode worker d0: reservation 5 has lapsed");
  EXPECT_TRUE(cluster_.View()->HasUsable(v1::WORKER_ROLE_DECODE));
}

TEST_F(RouterTest, LapsedLeaseEndsWhatRunsThere) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  clock_.Advance(seconds(5));
  loop_.RunReady();
  ExpectFailed(absl::StatusCode::kUnavailable, "its lease lapsed");
}

TEST_F(RouterTest, AStreamWithoutAFinishIsAnErrorNotASuccess) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {1});
  End("generate u0", absl::OkStatus(), kWorker);
  ExpectFailed(absl::StatusCode::kInternal, "without a finish");
}

TEST_F(RouterTest, DeadlinesOfWorkersPassThrough) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_UNIFIED), clock_.Now() + seconds(1));
  End("generate u0", DeadlineExceeded("passed"), kWorker);
  ExpectFailed(absl::StatusCode::kDeadlineExceeded, "unified worker u0");
}

TEST_F(RouterTest, ASlowReaderIsEnded) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  stream_.capacity = 1;
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {1});
  Say("generate u0", {2});
  ExpectFailed(absl::StatusCode::kResourceExhausted, "reads too slowly");
}

TEST_F(RouterTest, ChoicesShareOneEnding) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_n(3);
  request.mutable_sampling()->set_seed(42);
  Submit(request);
  ASSERT_EQ(workers_.streams.size(), 3u);
  EXPECT_EQ(workers_.streams[0]->sequence.sampling().seed(), 42u);
  EXPECT_EQ(workers_.streams[2]->sequence.sampling().seed(), ChoiceSeed(42, 2));
  EXPECT_EQ(router_.Status().requests_in_flight(), 3);
  for (int i = 0; i < 3; ++i) {
    Say("generate u0", {i});
    EXPECT_FALSE(stream_.summary.has_value());
    Finish("generate u0", v1::WorkerFinish::REASON_LENGTH);
  }
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.summary->usage().completion_tokens(), 3);
  EXPECT_EQ(stream_.summary->seed(), 42u);
  ExpectNothingLeft();
}

TEST_F(RouterTest, OneFailedChoiceEndsTheOthers) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_n(3);
  Submit(request);
  Say("generate u0", {1});
  End("generate u0", Internal("a row of logits is NaN"), kWorker);
  ExpectFailed(absl::StatusCode::kInternal, "unified worker u0");
}

TEST_F(RouterTest, MoreThanMayBeInFlightIsRefused) {
  v1::GenerateRequest request = Ask();
  request.set_n(5);
  RecordingStream other;
  EXPECT_TRUE(absl::IsResourceExhausted(router_.Submit(request, kNoDeadline, other).status()));
  ExpectNothingLeft();
}

TEST_F(RouterTest, DrainRefusesNewAndWaitsForOld) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_UNIFIED));
  bool drained = false;
  router_.Drain(clock_.Now() + seconds(10), [&drained] { drained = true; });
  loop_.RunReady();
  RecordingStream other;
  EXPECT_TRUE(absl::IsUnavailable(router_.Submit(Ask(), kNoDeadline, other).status()));
  EXPECT_FALSE(drained);
  Say("generate u0", {1});
  Finish("generate u0", v1::WorkerFinish::REASON_LENGTH);
  EXPECT_TRUE(drained);
}

TEST_F(RouterTest, DrainFailsWhatIsLeftAtItsDeadline) {
  Submit(Ask());
  bool drained = false;
  router_.Drain(clock_.Now() + seconds(4), [&drained] { drained = true; });
  loop_.RunReady();
  clock_.Advance(seconds(4));
  loop_.RunReady();
  EXPECT_TRUE(drained);
  ExpectFailed(absl::StatusCode::kUnavailable, "shutting down");
}

TEST_F(RouterTest, NoWorkersNoRoute) {
  Submit(Ask(v1::ROUTE_UNIFIED));
  ExpectFailed(absl::StatusCode::kUnavailable, "needs a unified worker: none registered");
}

}  // namespace
}  // namespace tandem
