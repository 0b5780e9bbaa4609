// Requests with several choices that are streamed: how each of them begins, stops and ends.

#include <chrono>
#include <cstdint>
#include <vector>

#include "tests/unit/router/choices_fixture.h"

namespace tandem::choices_test {
namespace {

using choices::ChoicesTest;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(ChoicesTest, OneCallServesAllAndTheWorkersDeriveTheSeeds) {
  v1::GenerateRequest request = AskFor(3, v1::ROUTE_UNIFIED);
  request.mutable_sampling()->set_seed(42);
  request.set_tenant("alice");
  request.set_cache_salt("salt");
  Submit(request);
  ASSERT_EQ(workers_.streams.size(), 1u);
  const v1::SequenceRequest& sequence = workers_.streams[0]->sequence;
  EXPECT_EQ(sequence.n(), 3);
  EXPECT_EQ(sequence.sampling().seed(), 42u);
  EXPECT_FALSE(sequence.sampling().has_logprobs());
  EXPECT_EQ(sequence.tenant(), "alice");
  EXPECT_EQ(sequence.cache_salt(), "salt");
  EXPECT_EQ(router_.Status().requests_in_flight(), 3);
  EXPECT_EQ(cluster_.View()->workers.back().charged.sequences, 3);
  for (const int32_t index : {2, 0, 1}) {
    Say("generate u0", {index}, index);
    EXPECT_FALSE(stream_.summary.has_value());
    EndChoice("generate u0", index, kLength);
    EXPECT_EQ(stream_.finishes.back().index(), index) << "sent immediately";
  }
  Close("generate u0", kLength);
  ExpectOk();
  EXPECT_EQ(stream_.summary->usage().completion_tokens(), 3);
  EXPECT_EQ(stream_.summary->usage().cached_tokens(), 2);
  EXPECT_EQ(stream_.summary->usage().preemptions(), 1);
  EXPECT_EQ(stream_.summary->seed(), 42u);
  EXPECT_THAT(workers_.ended_choices, IsEmpty());
}

TEST_F(ChoicesTest, DecodeBeginsOnceEveryChoiceHasItsFirstToken) {
  v1::GenerateRequest request = AskFor(3);
  request.set_tenant("alice");
  request.set_cache_salt("salt");
  request.mutable_sampling()->set_logprobs(0);
  Submit(request);
  const v1::ReserveRequest& reserve = workers_.reservations.back()->request;
  EXPECT_THAT(std::vector<int32_t>(reserve.prompt().begin(), reserve.prompt().end()),
              ElementsAre(1, 2, 3));
  EXPECT_EQ(reserve.width(), 3);
  EXPECT_EQ(reserve.tenant(), "alice");
  EXPECT_EQ(reserve.cache_salt(), "salt");
  Reserved();
  EXPECT_EQ(workers_.target.cached_tokens(), 48) << "whose KV need not be sent";
  Say("prefill p0", {10}, 0, -0.5f);
  Say("prefill p0", {30}, 2, -1.5f);
  EXPECT_EQ(workers_.Find("decode d0"), nullptr) << "a first token is missing";
  Say("prefill p0", {20}, 1, -1.0f);
  ASSERT_NE(workers_.Find("decode d0"), nullptr);
  ASSERT_EQ(workers_.first_tokens.size(), 3u);
  EXPECT_EQ(workers_.first_tokens[1].sampled().token_id(), 20);
  EXPECT_EQ(workers_.first_tokens[2].sampled().logprob(), -1.5f);
  Close("prefill p0", kHandedOff);
  for (const int32_t index : {0, 1, 2}) {
    Say("decode d0", {index * 10 + 11, index * 10 + 12, index * 10 + 13}, index, -1.0f);
    EndChoice("decode d0", index, kLength);
  }
  Close("decode d0", kLength);
  ExpectOk();
  EXPECT_THAT(stream_.ids[1], ElementsAre(20, 21, 22, 23));
  EXPECT_DOUBLE_EQ(stream_.FinishOf(2).cumulative_logprob(), -4.5);
  EXPECT_EQ(stream_.FinishOf(2).kv_bytes().raw(), 77u);
  EXPECT_EQ(stream_.summary->usage().cached_tokens(), 2) << "those of the worker that prefilled";
  EXPECT_EQ(stream_.summary->usage().preemptions(), 2) << "of both workers";
  EXPECT_THAT(workers_.released, IsEmpty());
}

TEST_F(ChoicesTest, AChoiceThatEndsWithItsFirstTokenDoesNotKeepTheOthersFromDecoding) {
  Submit(AskFor(2));
  Reserved();
  Say("prefill p0", {999}, 0);  // EOS
  EndChoice("prefill p0", 0, kStop);
  EXPECT_THAT(stream_.finishes, IsEmpty()) << "its KV is still on its way";
  Say("prefill p0", {20}, 1);
  ASSERT_EQ(workers_.first_tokens.size(), 2u) << "the ended one keeps its place";
  Close("prefill p0", kHandedOff);
  EXPECT_EQ(stream_.FinishOf(0).reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(stream_.FinishOf(0).kv_bytes().raw(), 77u);
  Say("decode d0", {21, 22, 23}, 1);
  EndChoice("decode d0", 1, kLength);
  Close("decode d0", kLength);
  ExpectOk();
  EXPECT_THAT(stream_.ids[0], ElementsAre(999));
}

TEST_F(ChoicesTest, NoWorkerDecodesWhenAllChoicesEndWithTheirFirstToken) {
  v1::GenerateRequest request = AskFor(2);
  request.set_max_tokens(1);
  Submit(request);
  Reserved();
  Say("prefill p0", {10}, 0);
  Say("prefill p0", {20}, 1);
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  EndChoice("prefill p0", 0, kLength);
  EndChoice("prefill p0", 1, kLength);
  Close("prefill p0", kLength);
  ExpectOk();
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
}

TEST_F(ChoicesTest, AStopStringEndsOneChoiceAndItsWorkerIsNotified) {
  v1::GenerateRequest request = AskFor(2, v1::ROUTE_UNIFIED);
  request.add_stop("bc");
  Submit(request);
  Say("generate u0", {'a', 'b'}, 0);
  Say("generate u0", {'x', 'b'}, 1);
  Say("generate u0", {'c'}, 1);
  EXPECT_THAT(workers_.ended_choices, ElementsAre("u0#1"));
  EXPECT_EQ(stream_.FinishOf(1).reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(stream_.FinishOf(1).stop(), "bc");
  Say("generate u0", {'d'}, 1);  // it was on its way
  EXPECT_THAT(stream_.ids[1], ElementsAre('x', 'b', 'c')) << "nothing after the end";
  EndChoice("generate u0", 1, v1::WorkerFinish::REASON_ENDED);
  Say("generate u0", {'x', 'y'}, 0);
  EndChoice("generate u0", 0, kLength);
  Close("generate u0", kLength);
  ExpectOk();
  EXPECT_EQ(stream_.text[0], "abxy");
  EXPECT_EQ(stream_.text[1], "x");
  EXPECT_THAT(workers_.ended_choices, ElementsAre("u0#1")) << "the worker is notified once";
  EXPECT_EQ(stream_.finishes.size(), 2u);
}

TEST_F(ChoicesTest, AStopStringInTheFirstTokenIsSentToTheDecodeWorkerAfterItsFirstEvent) {
  v1::GenerateRequest request = AskFor(2);
  request.add_stop("b");
  Submit(request);
  Reserved();
  Say("prefill p0", {'b'}, 0);
  Say("prefill p0", {'x'}, 1);
  EXPECT_THAT(workers_.ended_choices, IsEmpty()) << "its call may come after ours";
  Close("prefill p0", kHandedOff);
  EXPECT_EQ(stream_.FinishOf(0).stop(), "b");
  Say("decode d0", {'q'}, 0);
  Say("decode d0", {'q'}, 0);
  EXPECT_THAT(workers_.ended_choices, ElementsAre("d0#0"));
  Say("decode d0", {'y', 'b'}, 1);
  EXPECT_THAT(workers_.ended_choices, ElementsAre("d0#0", "d0#1"));
  EXPECT_FALSE(stream_.end.has_value()) << "the worker has yet to say what it cost";
  Close("decode d0", v1::WorkerFinish::REASON_ENDED);
  ExpectOk();
  EXPECT_EQ(stream_.text[0], "");
  EXPECT_EQ(stream_.text[1], "xy");
  EXPECT_EQ(stream_.summary->usage().completion_tokens(), 4);
}

TEST_F(ChoicesTest, AStopStringInEveryFirstTokenNeedsNoDecode) {
  v1::GenerateRequest request = AskFor(1);
  request.add_stop("b");
  Submit(request);
  Reserved();
  Say("prefill p0", {'b'});
  EXPECT_THAT(workers_.Open(), ElementsAre("prefill p0"));
  Close("prefill p0", kHandedOff);
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  EXPECT_EQ(stream_.FinishOf(0).stop(), "b");
  ExpectOk();
}

TEST_F(ChoicesTest, AWorkerThatDoesNotStopDoesNotKeepTheClientWaiting) {
  v1::GenerateRequest request = AskFor(1, v1::ROUTE_UNIFIED);
  request.add_stop("b");
  Submit(request);
  Say("generate u0", {'a', 'b'});
  clock_.Advance(seconds(1));
  loop_.RunReady();
  EXPECT_FALSE(stream_.end.has_value());
  clock_.Advance(seconds(1));
  loop_.RunReady();
  ExpectOk();
}

TEST_F(ChoicesTest, AWorkerLostAfterAllChoicesHaveEndedDoesNotMatter) {
  v1::GenerateRequest request = AskFor(1, v1::ROUTE_UNIFIED);
  request.add_stop("b");
  Submit(request);
  Say("generate u0", {'a', 'b'});
  End("generate u0", Unavailable("Socket closed"), kNetwork);
  ExpectOk();
  EXPECT_FALSE(cluster_.View()->HasUsable(v1::WORKER_ROLE_UNIFIED));
}

TEST_F(ChoicesTest, AFailingWorkerEndsAllChoicesWithOneStatus) {
  Submit(AskFor(3, v1::ROUTE_UNIFIED));
  Say("generate u0", {1}, 0);
  EndChoice("generate u0", 0, kStop);
  Say("generate u0", {1}, 1);
  End("generate u0", Internal("a row of logits is NaN"), kWorker);
  ExpectFailed(absl::StatusCode::kInternal, "unified worker u0");
  EXPECT_FALSE(stream_.summary.has_value());
}

TEST_F(ChoicesTest, AChoiceThatNoWorkerEndedIsAnError) {
  Submit(AskFor(2, v1::ROUTE_UNIFIED));
  Say("generate u0", {1}, 0);
  EndChoice("generate u0", 0, kLength);
  Say("generate u0", {1}, 1);
  Close("generate u0", kLength);
  ExpectFailed(absl::StatusCode::kInternal, "choice 1");
}

TEST_F(ChoicesTest, TokensOfAChoiceThatDoesNotExistAreAnError) {
  Submit(AskFor(2, v1::ROUTE_UNIFIED));
  Say("generate u0", {1}, 2);
  ExpectFailed(absl::StatusCode::kInternal,
               "unified worker u0 spoke of choice 2; the request has 2");
}

TEST_F(ChoicesTest, MoreChoicesThanMayBeInFlightAreRefused) {
  RecordingStream other;
  EXPECT_TRUE(absl::IsResourceExhausted(router_.Submit(AskFor(9), kNoDeadline, other).status()));
  v1::GenerateRequest best = AskFor(1);
  best.set_best_of(9);
  EXPECT_TRUE(absl::IsResourceExhausted(router_.Submit(best, kNoDeadline, other).status()));
  v1::GenerateRequest beams = AskFor(1);
  beams.mutable_beam_search()->set_beam_width(9);
  EXPECT_TRUE(absl::IsResourceExhausted(router_.Submit(beams, kNoDeadline, other).status()));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace tandem::choices_test
