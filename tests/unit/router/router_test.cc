#include "router/router.h"

#include <atomic>
#include <thread>

#include "base/retry_after.h"
#include "tests/support/blocking_tokenizer.h"
#include "tests/support/router_fixture.h"

namespace tandem::router_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class RouterTest : public RouterFixture {};

TEST_F(RouterTest, ADecisionCopiesNoWorker) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  const ClusterView* const before = cluster_.View().get();
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_EQ(cluster_.View()->workers.back().charged.sequences, 1);
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  EXPECT_EQ(cluster_.View().get(), before);
}

TEST_F(RouterTest, ARouteIsProvenByTheWorkerThatEndsIt) {
  const RouteProofs& proofs = counts_.proofs;
  Submit(Ask());
  Reserved(5);
  Say("prefill p0", {10});
  EXPECT_FALSE(proofs.latest(v1::ROUTE_DISAGGREGATED)) << "the decode worker has sent nothing";
  clock_.Advance(std::chrono::milliseconds(20));
  Finish("prefill p0", kHandedOff);
  Say("decode d0", {11});
  EXPECT_EQ(proofs.latest(v1::ROUTE_DISAGGREGATED), clock_.Now());
  EXPECT_FALSE(proofs.latest(v1::ROUTE_UNIFIED));
  Say("decode d0", {12, 13});
  Finish("decode d0", kLength);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  RecordingStream second;
  ASSERT_TRUE(router_.Submit(Ask(v1::ROUTE_UNIFIED), kNoDeadline, second).ok());
  loop_.RunReady();
  Say("generate u0", {10});
  EXPECT_EQ(proofs.latest(v1::ROUTE_UNIFIED), clock_.Now());
}

TEST_F(RouterTest, DisaggregatedRequestGoesThroughBothWorkers) {
  Submit(Ask());
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  clock_.Advance(milliseconds(2));
  Reserved(5, std::chrono::microseconds(500));
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  clock_.Advance(milliseconds(8));
  Say("prefill p0", {10});
  EXPECT_THAT(workers_.Open(), UnorderedElementsAre("prefill p0", "decode d0"));
  ASSERT_EQ(workers_.first_tokens.size(), 1u);
  EXPECT_EQ(workers_.first_tokens[0].sampled().token_id(), 10);
  EXPECT_THAT(stream_.tokens, ElementsAre(10)) << "the first token is streamed at once";
  Finish("prefill p0", kHandedOff);
  clock_.Advance(milliseconds(30));
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);

  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12, 13));
  ASSERT_EQ(stream_.finishes.size(), 1u);
  const v1::ChoiceFinish& finish = stream_.finishes[0];
  EXPECT_EQ(finish.reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(finish.route(), v1::ROUTE_DISAGGREGATED);
  EXPECT_EQ(finish.kv_bytes().raw(), 77u);
  EXPECT_DOUBLE_EQ(finish.stages().ttft_ms(), 10);
  EXPECT_DOUBLE_EQ(finish.stages().reserve_ms(), 1.5);
  EXPECT_DOUBLE_EQ(finish.stages().admission_ms(), 0.5) << "waiting for room is no asking";
  EXPECT_DOUBLE_EQ(finish.tpot_ms(), 10);
  EXPECT_EQ(stream_.summary->usage().prompt_tokens(), 3);
  EXPECT_EQ(stream_.summary->usage().completion_tokens(), 4);
  EXPECT_THAT(workers_.released, IsEmpty());
  ExpectNothingLeft();
}

TEST_F(RouterTest, TheLedgerFollowsARequestThroughItsWorkers) {
  const auto own = [this](const char* name) { return ledger_.Find({name, 1})->own(); };
  Submit(Ask());
  EXPECT_EQ(own("p0").waiting_prompt_tokens, 3);
  EXPECT_EQ(own("d0").decoding, 1) << "its place is taken from the reservation on";
  EXPECT_EQ(ledger_.Find({"p0", 1})->parts().front().stage, PartInFlight::Stage::kAwaitingRoom);
  Reserved();
  EXPECT_EQ(ledger_.Find({"p0", 1})->parts().front().stage, PartInFlight::Stage::kWaiting);
  Say("prefill p0", {10});
  EXPECT_EQ(own("p0").waiting_prompt_tokens, 0);
  Say("decode d0", {11, 12});
  EXPECT_EQ(own("d0").decode_context_tokens, 5);
  Finish("prefill p0", kHandedOff);
  Say("decode d0", {13});
  Finish("decode d0", kLength);
  ExpectNothingLeft();
  const v1::RoutingUse routing = router_.Status().routing();
  EXPECT_EQ(routing.policy(), "least-loaded");
  EXPECT_EQ(routing.disaggregated(), 1u);
  EXPECT_EQ(routing.unified(), 0u);
  EXPECT_EQ(routing.lowest_cost(), 1u);
}

TEST_F(RouterTest, TheStatusSaysWhichWorkersDrain) {
  const auto draining = [this] {
    std::map<std::string, bool> by_name;
    const v1::GetStatusResponse status = router_.Status();
    for (const v1::WorkerStatus& worker : status.workers()) {
      by_name[worker.name()] = worker.draining();
    }
    return by_name;
  };
  EXPECT_THAT(draining(), testing::UnorderedElementsAre(testing::Pair("p0", false),
                                                        testing::Pair("d0", false)));
  Leave("d0");
  EXPECT_THAT(draining(),
              testing::UnorderedElementsAre(testing::Pair("p0", false), testing::Pair("d0", true)));
}

v1::GenerateRequest AskInText(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.set_max_tokens(4);
  request.set_route(v1::ROUTE_DISAGGREGATED);
  return request;
}

// Submit runs on the threads that take the workers' heartbeats, too.
TEST_F(RouterTest, SubmitItselfTokenizesNoText) {
  const BlockingTokenizer tokenizer("");
  Router router(Options(), Parts(tokenizer));
  ASSERT_TRUE(router.Submit(AskInText("abc"), kNoDeadline, stream_).ok());
  EXPECT_EQ(tokenizer.encoded(), 0);
  loop_.RunReady();
  EXPECT_EQ(tokenizer.encoded(), 1);
  EXPECT_THAT(workers_.reservations.back()->request.prompt(), ElementsAre('a', 'b', 'c'));
}

TEST_F(RouterTest, APromptThatTurnsOutTooLongEndsWithInvalidArgument) {
  Submit(AskInText(std::string(100, 'a')));
  ExpectFailed(absl::StatusCode::kInvalidArgument, "prompt has 100 tokens");
}

TEST_F(RouterTest, ARequestWhoseClientLeavesWhileItsTextWaitsEndsOnce) {
  BlockingTokenizer tokenizer("abc");
  RouterOptions options = Options();
  options.tokenizing.threads = 1;
  {
    Router router(options, Parts(tokenizer));
    const auto id = router.Submit(AskInText("abc"), kNoDeadline, stream_);
    ASSERT_TRUE(id.ok()) << id.status();
    loop_.RunReady();
    tokenizer.WaitUntilBlocked();
    EXPECT_EQ(router.Status().requests_in_flight(), 1);
    EXPECT_EQ(router.Status().tokenizing().short_texts(), 1);
    router.Cancel(*id, Cancelled("the client went away"));
    loop_.RunReady();
    ASSERT_TRUE(stream_.end.has_value());
    EXPECT_EQ(stream_.end->code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(router.Status().requests_in_flight(), 0);
    tokenizer.Unblock();
    while (router.Status().tokenizing().short_texts() > 0) std::this_thread::yield();
    loop_.RunReady();
  }
  EXPECT_THAT(workers_.Open(), IsEmpty());
}

TEST_F(RouterTest, DrainingWaitsForTextsThatAreBeingTokenized) {
  BlockingTokenizer tokenizer("abc");
  RouterOptions options = Options();
  options.tokenizing.threads = 1;
  Router router(options, Parts(tokenizer));
  ASSERT_TRUE(router.Submit(AskInText("abc"), kNoDeadline, stream_).ok());
  loop_.RunReady();
  tokenizer.WaitUntilBlocked();
  bool drained = false;
  router.Drain(clock_.Now() + seconds(1), [&drained] { drained = true; });
  loop_.RunReady();
  EXPECT_FALSE(drained);
  Pass(seconds(1));
  EXPECT_TRUE(drained);
  EXPECT_EQ(stream_.end.value_or(absl::OkStatus()).code(), absl::StatusCode::kUnavailable);
  tokenizer.Unblock();
  while (router.Status().tokenizing().short_texts() > 0) std::this_thread::yield();
  loop_.RunReady();
}

// The clients of these wait as well, though they have no request yet.
TEST_F(RouterTest, DrainingWaitsForTextsWithoutARequest) {
  BlockingTokenizer tokenizer("abc");
  RouterOptions options = Options();
  options.tokenizing.threads = 1;
  Router router(options, Parts(tokenizer));
  const auto tokenize = [&router](const char* text, Router::Tokenized done) {
    router.Tokenize(TokenizeWork(text, EncodeOptions()), nullptr, std::move(done));
  };
  std::atomic<bool> answered = false;
  tokenize("abc", [&answered](const auto& ids) { answered = ids.ok(); });
  tokenizer.WaitUntilBlocked();
  absl::Status waiting;
  tokenize("def", [&waiting](const auto& ids) { waiting = ids.status(); });
  bool drained = false;
  router.Drain(clock_.Now() + seconds(1), [&drained] { drained = true; });
  EXPECT_EQ(waiting.code(), absl::StatusCode::kUnavailable) << "it need not wait for its turn";
  absl::Status late;
  tokenize("ghi", [&late](const auto& ids) { late = ids.status(); });
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  Pass(seconds(1));
  EXPECT_FALSE(drained) << "nobody has answered the first client";
  tokenizer.Unblock();
  while (!drained) {
    loop_.RunReady();
    std::this_thread::yield();
  }
  EXPECT_TRUE(answered);
}

// One worker with a tiny context must not have the requests of all others refused.
TEST_F(RouterTest, ARequestGoesOnlyToWorkersWhoseContextHoldsIt) {
  v1::RegisterRequest tiny = Registration("u0", v1::WORKER_ROLE_UNIFIED);
  tiny.set_max_context_tokens(6);
  Join(tiny);
  EXPECT_EQ(router_.Status().max_context_tokens(), 100);
  Submit(Ask(v1::ROUTE_AUTO));  // 3 tokens and 4 more
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  RecordingStream second;
  EXPECT_EQ(router_.Submit(Ask(v1::ROUTE_UNIFIED), kNoDeadline, second).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::GenerateRequest brief = Ask(v1::ROUTE_UNIFIED);
  brief.set_max_tokens(3);
  ASSERT_TRUE(router_.Submit(brief, kNoDeadline, second).ok());
  loop_.RunReady();
  EXPECT_THAT(workers_.Open(), Contains("generate u0"));
}

// The decode worker took the request; what it cannot use comes from the prefill worker.
TEST_F(RouterTest, ADecodeWorkersRefusalOfAHandOffIsNotTheClientsFault) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  End("decode d0", InvalidArgument("first_tokens: the log-probability of token 3 is nan"), kWorker);
  ExpectFailed(absl::StatusCode::kInternal, "decode worker d0: first_tokens");
}

// A worker that loads its weights has nothing to do, and would draw all requests.
TEST_F(RouterTest, AStartingWorkerGetsRequestsThatNoOtherWorkerCanTake) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  v1::WorkerLoad load;
  load.set_running(5);
  Report("u1", load);
  load.set_running(0);
  load.set_starting(true);
  Report("u0", load);
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  RecordingStream second;
  Leave("u1");
  ASSERT_TRUE(router_.Submit(Ask(v1::ROUTE_UNIFIED), kNoDeadline, second).ok());
  loop_.RunReady();
  EXPECT_THAT(workers_.Open(), Contains("generate u0"));
}

TEST_F(RouterTest, TheStatusHasAWorkersReportButNotTheHashOfItsWeights) {
  v1::WorkerLoad load;
  load.set_waiting_prompt_tokens(70);
  load.mutable_kv()->set_hit_tokens(30);
  load.set_weights_hash(12345);
  Report("d0", load);
  const v1::GetStatusResponse status = router_.Status();
  ASSERT_EQ(status.workers(0).name(), "d0");
  load.clear_weights_hash();
  EXPECT_EQ(status.workers(0).load().SerializeAsString(), load.SerializeAsString());
}

TEST_F(RouterTest, AStartingWorkerIsAskedBeforeARequestWaitsForRoom) {
  v1::WorkerLoad load;
  load.set_starting(true);
  Join("d1", v1::WORKER_ROLE_DECODE);
  Report("d1", load);
  Submit(Ask());
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
}

TEST_F(RouterTest, ALeavingWorkerKeepsItsRequestsWhileTheOtherStarts) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_UNIFIED));
  Say("generate u0", {1});
  v1::WorkerLoad load;
  load.set_starting(true);
  Join("u1", v1::WORKER_ROLE_UNIFIED);
  Report("u1", load);
  Leave("u0");
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  load.set_starting(false);
  Report("u1", load);
  EXPECT_THAT(workers_.Open(), Contains("generate u1"));
}

TEST_F(RouterTest, AWaitForRoomThatEndsInARefusalIsAdmissionTime) {
  Submit(Ask());  // only d0 can take it
  clock_.Advance(milliseconds(30));
  Join("d1", v1::WORKER_ROLE_DECODE);
  RefuseReservation(ResourceExhausted("it waited too long"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  clock_.Advance(milliseconds(10));
  Reserved(5, milliseconds(9));
  Say("prefill p0", {999});
  Finish("prefill p0", kStop);
  ASSERT_EQ(stream_.finishes.size(), 1u);
  EXPECT_DOUBLE_EQ(stream_.finishes[0].stages().reserve_ms(), 1);
  EXPECT_DOUBLE_EQ(stream_.finishes[0].stages().admission_ms(), 39);
  EXPECT_DOUBLE_EQ(stream_.finishes[0].stages().earlier_attempts_ms(), 0) << "it is counted once";
}

TEST_F(RouterTest, FirstTokenThatEndsTheRequestNeedsNoDecode) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {999});  // EOS
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  Finish("prefill p0", kStop);
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
  Finish("decode d0", kLength);
  EXPECT_FALSE(stream_.end.has_value());
  Finish("prefill p0", kHandedOff);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.finishes[0].kv_bytes().raw(), 77u);
  ExpectNothingLeft();
}

TEST_F(RouterTest, AReportThatNeverComesDoesNotKeepTheClientWaiting) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);
  clock_.Advance(seconds(2));
  loop_.RunReady();
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  ExpectNothingLeft();
}

TEST_F(RouterTest, CancelStopsBothWorkersAndReleasesTheReservation) {
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
  EXPECT_EQ(RetryAfter(*stream_.end), seconds(1)) << "after the next report";
}

TEST_F(RouterTest, OnlyTheLastCandidateQueuesTheRequest) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  Submit(Ask(v1::ROUTE_DISAGGREGATED));
  EXPECT_TRUE(workers_.reservations.back()->request.at_once());
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
  RefuseReservation(ResourceExhausted("full"));
  ExpectFailed(absl::StatusCode::kResourceExhausted, "d1");
}

TEST_F(RouterTest, AFullWorkerQueuesTheRequestWhenTheOtherIsGone) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Submit(Ask());
  EXPECT_TRUE(workers_.reservations.back()->request.at_once()) << "there is d1";
  cluster_.Suspect({"d1", 1});
  RefuseReservation(ResourceExhausted("full; ask another worker"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
  EXPECT_EQ(router_.Status().reroutes().asked_again(), 1u);
  RefuseReservation(ResourceExhausted("waited in vain"));
  ExpectFailed(absl::StatusCode::kResourceExhausted, "d0: waited in vain");
  EXPECT_EQ(workers_.reservations.size(), 2u) << "it is not asked again and again";
}

TEST_F(RouterTest, ARefusalWithoutQueueingIsNotTheAnswerWhenNoWorkerIsLeft) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Submit(Ask());
  EXPECT_TRUE(workers_.reservations.back()->request.at_once()) << "there is d1";
  cluster_.Suspect({"d1", 1});
  cluster_.Suspect({"p0", 1});
  RefuseReservation(ResourceExhausted("full; ask another worker"));
  EXPECT_TRUE(workers_.Open().empty());
  ASSERT_FALSE(stream_.end.has_value()) << *stream_.end;
  Beat("p0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
}

TEST_F(RouterTest, FullDecodeWorkersAreAskedAgainWhenTheUnifiedOneIsFullToo) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  cluster_.Charge({"u0", 1}, {.sequences = 9});
  Submit(Ask(v1::ROUTE_AUTO));
  RefuseReservation(ResourceExhausted("full"));
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  End("generate u0", ResourceExhausted("too many wait"), kWorker);
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  EXPECT_TRUE(workers_.reservations.back()->request.at_once()) << "there is d1";
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_FALSE(workers_.reservations.back()->request.at_once());
  Reserved();
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  cluster_.Discharge({"u0", 1}, {.sequences = 9});
  const v1::RerouteUse use = router_.Status().reroutes();
  EXPECT_EQ(use.other_worker(), 2u);
  EXPECT_EQ(use.to_unified(), 1u);
  EXPECT_EQ(use.to_disaggregated(), 1u);
  EXPECT_EQ(use.asked_again(), 0u);
  EXPECT_EQ(use.latest(), "decode worker d0: full");
}

TEST_F(RouterTest, TheRetryAfterOfTheWorkerIsPassedOn) {
  absl::Status refusal = ResourceExhausted("no 3 blocks free");
  SetRetryAfter(refusal, milliseconds(70));
  Submit(Ask());
  RefuseReservation(refusal);
  ExpectFailed(absl::StatusCode::kResourceExhausted, "d0");
  EXPECT_EQ(RetryAfter(*stream_.end), milliseconds(70));
}

TEST_F(RouterTest, NoRoomTriesTheNextDecodeWorkerAndThenUnified) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  cluster_.Charge({"u0", 1}, {.sequences = 9});  // busy, so that auto disaggregates
  Submit(Ask(v1::ROUTE_AUTO));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d0"));
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  EXPECT_TRUE(workers_.reservations.back()->request.at_once()) << "there is a unified worker";
  RefuseReservation(ResourceExhausted("full"));
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  Say("generate u0", {1, 2, 3, 4});
  Finish("generate u0", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_EQ(stream_.finishes[0].route(), v1::ROUTE_UNIFIED);
  cluster_.Discharge({"u0", 1}, {.sequences = 9});
  ExpectNothingLeft();
}

TEST_F(RouterTest, PrefillWorkerLostOnceTheKvHasArrivedDoesNotMatter) {
  Submit(Ask());
  Reserved();
  Say("prefill p0", {10});
  Say("decode d0", {11});
  End("prefill p0", Unavailable("Socket closed"), kNetwork);
  Say("decode d0", {12, 13});
  Finish("decode d0", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12, 13));
  ExpectNothingLeft();
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
  Finish("generate u0", kLength);
  EXPECT_TRUE(drained);
}

TEST_F(RouterTest, ARequestSubmittedAsDrainingBeginsIsEnded) {
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  ASSERT_TRUE(router_.Submit(Ask(), kNoDeadline, stream_).ok());
  bool drained = false;
  router_.Drain(clock_.Now() + seconds(10), [&drained] { drained = true; });
  loop_.RunReady();
  ExpectFailed(absl::StatusCode::kUnavailable, "shutting down");
  EXPECT_TRUE(drained);
}

TEST_F(RouterTest, DrainFailsTheRemainingRequestsAtItsDeadline) {
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

TEST_F(RouterTest, TokensOfPromptsAndOutputsCountAgainstTheRateOfTheTenant) {
  TenantPolicy policy;
  policy.tenants["a"].tokens_per_minute = 7;
  admission_.SetTenants(std::make_shared<const TenantPolicy>(policy), clock_.Now());
  Join("u0", v1::WORKER_ROLE_UNIFIED);
  v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
  request.set_tenant("a");
  Submit(request);
  Say("generate u0", {10, 11, 12, 13});
  Finish("generate u0", kLength);
  ASSERT_TRUE(stream_.end.has_value() && stream_.end->ok());
  RecordingStream second;
  const absl::Status refused = router_.Submit(request, kNoDeadline, second).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("tokens per minute"));
  clock_.Advance(*RetryAfter(refused));
  const absl::StatusOr<RequestId> again = router_.Submit(request, kNoDeadline, second);
  ASSERT_TRUE(again.ok()) << again.status();
  loop_.RunReady();
  router_.Cancel(*again, absl::CancelledError());
  loop_.RunReady();
}

}  // namespace
}  // namespace tandem::router_test
